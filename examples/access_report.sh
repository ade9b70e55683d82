#!/bin/sh
# Counts the answers in a web server's log by status, and asks for a job of the type alert if the
# server had errors of its own.
#
#   windlass run examples/access_report.sh --payload "$(tail -n 1000 access.log)"
#
# windlass: timeout=20s retry.attempts=3
set -eu

# In the usual format the status is the ninth word of a line.
counts=$(awk '$9 ~ /^[1-5][0-9][0-9]$/ { n[$9]++ } END { for (s in n) print s, n[s] }' | sort)
if [ -z "$counts" ]; then
    echo "there is no line with a status" >&2
    exit 65 # bad data: not tried again
fi
echo "$counts"

errors=$(echo "$counts" | awk '/^5/ { sum += $2 } END { print sum + 0 }')
if [ "$errors" -gt 0 ]; then
    echo "J: alert|$errors answers were errors of the server"
fi
