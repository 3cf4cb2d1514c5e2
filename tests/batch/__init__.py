"""Gangs, queues and fair shares."""
