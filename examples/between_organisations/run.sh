#!/usr/bin/env bash
# Plays a bank, a telecom and a shop on one machine, each in a folder and in processes of
# its own, with a key of its own: from keys to prediction. Every command below is one that
# a company types; README.md says which.
#
# bash run.sh [FOLDER]    FOLDER is made, or a temporary one; PYTHON names the interpreter
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python}
work=${1:-$(mktemp -d)}
mkdir -p "$work"
work=$(cd "$work" && pwd)
export OMP_NUM_THREADS=1
skvfl() { "$python" -m skvfl "$@"; }
started=()
trap '[[ ${#started[@]} -eq 0 ]] || kill "${started[@]}" 2>/dev/null || true' EXIT

cp -r "$here/bank" "$here/telecom" "$here/shop" "$work"
"$python" "$here/make_tables.py" "$work"
# Ports of this machine that are free now, in place of those that the files name.
read -r bank_port telecom_port < <("$python" - <<'PYTHON'
import socket
held = [socket.create_server(("localhost", 0)) for _ in range(2)]
print(*(each.getsockname()[1] for each in held))
PYTHON
)
sed -i.old -e "s/:7400/:$bank_port/" -e "s/:7401/:$telecom_port/" "$work"/*/*.toml
rm "$work"/*/*.toml.old

echo "== Each company makes a key and a certificate"
for name in bank telecom shop; do
    (cd "$work/$name" && skvfl party keys "$name" | grep fingerprint)
done

echo "== They exchange certificates (by mail), and compare fingerprints (by telephone)"
cp "$work/bank/bank.pem" "$work/telecom"
cp "$work/bank/bank.pem" "$work/shop"
cp "$work/telecom/telecom.pem" "$work/shop/shop.pem" "$work/bank"

echo "== The telecom and the shop look at their side, and begin to serve"
for name in telecom shop; do
    (cd "$work/$name" && skvfl party check "$name.toml" | tail -n 1)
    (cd "$work/$name" && exec "$python" -m skvfl party serve "$name.toml") \
        > "$work/$name/serve.log" 2>&1 &
    started+=($!)
done
for name in telecom shop; do
    for _ in $(seq 300); do
        grep -q answers "$work/$name/serve.log" && break
        sleep 0.1
    done
    cat "$work/$name/serve.log"
done

echo "== The bank looks at both sides, trains, and predicts in another process"
for _ in $(seq 30); do
    (cd "$work/bank" && skvfl party check bank.toml > check.log) && break
    sleep 0.5
done
cat "$work/bank/check.log"
(cd "$work/bank" && "$python" train.py)
(cd "$work/bank" && "$python" predict.py)

echo "== What the telecom has written down"
tail -n 3 "$work/telecom/audit.jsonl"

echo "== What it is worth"
"$python" "$here/rehearsal.py" "$work"
