"""Instances of components: one for each task, from the spec that the user wrote."""

from __future__ import annotations

import copy

from millrace.topologies.model.component import Component
from millrace.topologies.model.errors import TopologyError
from millrace.topologies.model.specs import ComponentSpec


def new_instance(spec: ComponentSpec, component: str) -> Component:
    """An instance for one task, with copies of the spec's arguments: tasks share nothing."""
    names = [*range(len(spec.arguments)), *spec.keywords]
    for name, value in zip(names, [*spec.arguments, *spec.keywords.values()], strict=True):
        try:
            copy.deepcopy(value)
        except Exception as error:
            raise TopologyError(
                f"{component}: the argument {name} of its spec, a {type(value).__name__}, cannot be given to "
                f"each task ({error}); create it in prepare, or pass what it is made from, such as an address"
            ) from error
    try:
        arguments, keywords = copy.deepcopy((spec.arguments, dict(spec.keywords)))
        return spec.component(*arguments, **keywords)
    except TypeError as error:
        raise TopologyError(f"{component}: {spec.component.__name__} cannot be created: {error}") from error
