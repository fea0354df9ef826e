"""What systems that serve online and offline requests on one engine share: classes, the profile of steps, the step that
is filled up to a time limit, and its two phases."""
