"""Orders with their customers: a stream joined with a table, as of the arrival of the order.

    millrace run examples/orders.py
    millrace console-consumer --topic orders-with-customers --from-beginning

The topic `customers` is the table: the newest record of each customer number counts, and a record without a
value deletes the customer. An order of an unknown customer is kept, without a name.
"""

from pyspark.sql import DataFrame

from millrace.pipelines import log, pipeline


@pipeline(
    orders=log.json("orders", "number long, customer string, amount double"),
    customers=log.table("customers", "name string, city string", key="customer"),
    output=log.json("orders-with-customers", key="customer"),
)
def orders_with_customers(orders: DataFrame, customers: DataFrame) -> DataFrame:
    return orders.join(customers, "customer", "left")
