"""From a ``ResultSet`` to what the user looks at."""
