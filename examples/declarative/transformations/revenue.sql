-- The orders and the revenue of each customer, from the table that orders.py fills.
CREATE MATERIALIZED VIEW revenue AS
SELECT customer, count(*) AS orders, sum(amount) AS revenue
FROM orders
GROUP BY customer;
