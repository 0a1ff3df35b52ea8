"""Pictures, tables and pages made from results."""
