"""SQL alert rules: what Prometheus must not hold, since it is per expert.

In: rule files (``rules/*.yaml`` or the user's), and a store to ask.
Does: evaluates each rule's SQL, keeps its alerts pending, firing or without data, across restarts.
Out: Alertmanager and webhooks, and an HTTP API in Prometheus's shape for the dashboard's Alerts page.

``rule_file`` → ``rule`` → ``datasource`` → ``alert_state`` → ``notifier``; ``run`` wires them.
"""
