"""Tests of the guards in front of the routes."""
