"""`trace`: where the step time goes."""
