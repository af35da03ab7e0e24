#!/bin/sh
# An organisation with three teams: who shares how much, what is guaranteed, who may ask for what, and the caps.
# Once, as an administrator; `gqctl account show`, `gqctl qos show`, `gqctl limit show` and `gqshare` show the outcome.
set -eu

# Teams.  Of the eight A100s NLP has four for itself when it needs them and may borrow two more that are idle; vision
# has two; robotics has none of its own, and works with what the others leave.
gqctl account add lab --description='the whole laboratory'
gqctl account add nlp      --parent=lab --shares=2 --guarantee=4 --borrow=2 --coordinator=anna
gqctl account add vision   --parent=lab --shares=1 --guarantee=2
gqctl account add robotics --parent=lab --shares=1 --borrow=idle

# People.  Ben is in two teams; what he submits without --account is vision's.
gqctl user add anna carol --account=nlp
gqctl user add ben        --account=vision --default
gqctl user add ben dora   --account=robotics

# Classes of service: gqsub --qos=NAME.
gqctl qos set normal    --priority=50
gqctl qos add high      --priority=100 --usage-factor=2 --max-time=1d --accounts=nlp,vision
gqctl qos add debug     --priority=200 --max-time=30m
gqctl qos add scavenger --usage-factor=0.25 --description='cheap, and last in the queue'

# Caps.  Those at submit refuse what goes beyond them, those at start let it wait.
gqctl limit set --account=lab --per-user gpus=6 pending_jobs=10000
gqctl limit set --account=robotics gpu_hours_per_month=500
gqctl limit set --account=robotics gpus:a100=2 --at=submit
gqctl limit set --qos=debug --per-user gpus=1 running_jobs=2
