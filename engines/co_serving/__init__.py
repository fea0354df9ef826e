"""The base of systems with online and offline requests on one engine: classes, the profile of steps, the step that is
filled up to a time limit, and its two phases."""
