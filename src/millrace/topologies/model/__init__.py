"""The declarative half of topologies: components, streams, groupings and the graph they form."""
