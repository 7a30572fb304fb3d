"""The kinds of the group autoscaling: HorizontalPodAutoscaler and Scale."""
