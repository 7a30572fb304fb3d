"""Flow control between clients: fair queues of requests, memory budgets of bodies and responses."""
