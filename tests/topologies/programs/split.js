// A bolt in JavaScript by Storm's multilang protocol: splits sentences into words.
const readline = require("readline");
const send = (message) => process.stdout.write(JSON.stringify(message) + "\nend\n");
let lines = [];
let greeted = false;
readline.createInterface({ input: process.stdin }).on("line", (line) => {
  if (line !== "end") {
    lines.push(line);
    return;
  }
  const message = JSON.parse(lines.join("\n"));
  lines = [];
  if (!greeted) {
    greeted = true;
    send({ pid: process.pid });
    send({ command: "log", msg: "task " + message.context.taskid, level: 2 });
  } else if (message.tuple) {
    const text = message.tuple[5];
    if (text === "poison") {
      send({ command: "error", msg: "cannot be split" });
      send({ command: "fail", id: message.id });
      return;
    }
    for (const word of text.split(" ")) {
      send({ command: "emit", anchors: [message.id], tuple: [word], need_task_ids: false });
    }
    send({ command: "ack", id: message.id });
  }
});
