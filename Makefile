PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
