"""The form of resources: kind, metadata, fields, and links to related ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from starlette.requests import Request

from millrace.admin.cluster import ClusterDescription, describe_cluster
from millrace.rest.errors import error
from millrace.rest.web import proxy

Json = dict[str, Any]


class Links:
    """Makes resources of one cluster, with the address that the client used."""

    def __init__(self, request: Request, cluster_id: str) -> None:
        # A client behind another path has its links there too.
        prefix = "/kafka/v3" if request.scope["path"].startswith("/kafka/") else "/v3"
        self._base = f"{str(request.base_url).rstrip('/')}{prefix}"
        self.cluster_id = cluster_id

    def url(self, *path: object) -> str:
        """The address of something in the cluster."""
        return self._root("clusters", self.cluster_id, *path)

    def _root(self, *path: object) -> str:
        return "/".join((self._base, *(quote(str(each), safe="-:") for each in path)))

    def related(self, *path: object) -> Json:
        return {"related": self.url(*path)}

    def resource(self, kind: str, path: Iterable[object], fields: Json) -> Json:
        """A resource at a path below its cluster."""
        path = tuple(path)
        names = [f"{name}={value}" for name, value in zip(path[::2], path[1::2], strict=False)]
        resource_name = "crn:///" + "/".join(
            f"{singular}={value}"
            for singular, value in (
                ("kafka", self.cluster_id),
                *((each.partition("=")[0].removesuffix("s"), each.partition("=")[2]) for each in names),
            )
        )
        metadata = {"self": self.url(*path), "resource_name": resource_name}
        return {"kind": kind, "metadata": metadata, "cluster_id": self.cluster_id, **fields}

    def collection(self, kind: str, path: Iterable[object], data: list[Json]) -> Json:
        """A list of resources."""
        return {"kind": kind, "metadata": {"self": self.url(*path), "next": None}, "data": data}

    def clusters(self, data: list[Json]) -> Json:
        metadata = {"self": self._root("clusters"), "next": None}
        return {"kind": "KafkaClusterList", "metadata": metadata, "data": data}


async def cluster_of(request: Request) -> tuple[ClusterDescription, Links]:
    """The cluster, if the path names it. Raises ApiError."""
    cluster = await describe_cluster(proxy(request).client)
    cluster_id = cluster.cluster_id or ""
    if request.path_params.get("cluster", cluster_id) != cluster_id:
        raise error(404, f"Cluster {request.path_params['cluster'][:100]} cannot be found.")
    return cluster, Links(request, cluster_id)


async def links_of(request: Request) -> Links:
    return (await cluster_of(request))[1]
