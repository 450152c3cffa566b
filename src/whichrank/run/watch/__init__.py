"""Watch a job from outside: launch, alarm, capture, view."""
