#!/bin/sh
# An organisation with three teams: shares, guarantees, QOS and limits.
# Run it once, as an administrator.  `gqctl account show`, `gqctl qos show`, `gqctl limit show` and `gqshare` show the
# result.
set -eu

# Teams.  Of the eight A100s, four are guaranteed to nlp, which may borrow two more idle ones; two are guaranteed to
# vision; robotics has no guarantee and uses idle GPUs.
gqctl account add lab --description='the whole laboratory'
gqctl account add nlp      --parent=lab --shares=2 --guarantee=4 --borrow=2 --coordinator=anna
gqctl account add vision   --parent=lab --shares=1 --guarantee=2
gqctl account add robotics --parent=lab --shares=1 --borrow=idle

# Users.  Ben is in two teams; his jobs without --account run in vision.
gqctl user add anna carol --account=nlp
gqctl user add ben        --account=vision --default
gqctl user add ben dora   --account=robotics

# Classes of service: gqsub --qos=NAME.
gqctl qos set normal    --priority=50
gqctl qos add high      --priority=100 --usage-factor=2 --max-time=1d --accounts=nlp,vision
gqctl qos add debug     --priority=200 --max-time=30m
gqctl qos add scavenger --usage-factor=0.25 --description='cheap, and last in the queue'

# Limits.  A job that exceeds a limit at submit is refused; at start, it waits.
gqctl limit set --account=lab --per-user gpus=6 pending_jobs=10000
gqctl limit set --account=robotics gpu_hours_per_month=500
gqctl limit set --account=robotics gpus:a100=2 --at=submit
gqctl limit set --qos=debug --per-user gpus=1 running_jobs=2
