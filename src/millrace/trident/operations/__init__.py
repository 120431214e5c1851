"""Operations on tuples: functions, filters, aggregators and queries, and expressions over fields.

Nothing here knows Spark. The same operations run in Spark's tasks and in the workers of a topology.
"""
