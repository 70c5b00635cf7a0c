"""The same jobs on other systems. Each script runs in the other systems' environment, which has nothing of this project."""
