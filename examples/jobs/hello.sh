#!/bin/sh
#GQ --job-name=hello
#GQ --time=1
#GQ --output=hello-%j.out
# The smallest job: one task on one CPU.        gqsub hello.sh && gqlog -f last
echo "job $GQ_JOB_ID runs on $GQ_NODELIST, submitted from $GQ_SUBMIT_DIR"
