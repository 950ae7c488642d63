#!/usr/bin/env bash
# Measures a fleet (docs/fleet.md) of one node that owns all logs, with a PostgreSQL of its own on the same machine. What is compared
# runs in turns. Prints Markdown tables of medians with their spread.
#
#   scripts/fleet.sh [part ...]        default: all parts
#
#   lives      PUSHB 100, then PULLB + ACKB 100: replicated, synced without a fleet, and a table with a row per job (SKIP LOCKED)
#   single     PUSH, then PULL + ACK, 1 in flight: replicated, and synced without a fleet
#   latency    pushes at 1,000/s, and the bare commit of a row as large in the same minute
#   failover   from a kill -9 until the other node has answered a push: by a lease of 3 s, and buried
#   replay     the takeover of 1 GB of log by a node without files
#
#   FLEET_BENCH_ROUNDS   rounds (default 3)
#   FLEET_BENCH_SCALE    per cent of the usual number of jobs (default 100)
#   FLEET_BENCH_WINDOW   batches in flight on each of 4 connections (default 4)
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${FLEET_BENCH_ROUNDS:-3}
scale=${FLEET_BENCH_SCALE:-100}
window=${FLEET_BENCH_WINDOW:-4}
shards=$(nproc)
parts=("$@")
[ "$#" -gt 0 ] || parts=(lives single latency failover replay)
for part in "${parts[@]}"; do
    case $part in
    lives | single | latency | failover | replay) ;;
    *) echo "fleet: there is no part '$part'" >&2; exit 2 ;;
    esac
done
# Payload bytes, those of them that no compressor saves (two fifths of what a job takes in the log), jobs.
sizes=("100 64 $((400000 * scale / 100))" "1000 450 $((120000 * scale / 100))")

programs=
IFS=: read -ra places <<<"$PATH"
for place in "${places[@]}" /usr/lib/postgresql/*/bin; do
    if [ -x "$place/initdb" ] && [ -x "$place/postgres" ] && [ -x "$place/pgbench" ]; then
        programs=$place
        break
    fi
done
[ -n "$programs" ] || { echo "fleet: PostgreSQL is needed, with initdb and pgbench" >&2; exit 1; }
# PostgreSQL does not run as root.
as_owner=()
[ "$(id -u)" -ne 0 ] || as_owner=(setpriv --reuid=postgres --regid=postgres --init-groups)

name=fleet
. scripts/lib/measure.sh
database=
declare -A node_pid=() node_tcp=() node_http=()

stop_nodes() {
    local node
    for node in "${!node_pid[@]}"; do
        kill -9 "${node_pid[$node]}" 2>/dev/null || true
        wait "${node_pid[$node]}" 2>/dev/null || true
        unset "node_pid[$node]"
    done
}

stop_database() {
    [ -n "$database" ] || return 0
    kill -INT "$database" 2>/dev/null || true
    wait "$database" 2>/dev/null || true
    database=
}
trap 'stop_nodes; stop; stop_database; rm -rf "$work"' EXIT

sql() { # statement
    PGOPTIONS='-c client_min_messages=warning' "$programs/psql" -XAtq -h "$socket" -U corq -d postgres -c "$1"
}

start_database() {
    chmod 755 "$work"
    mkdir "$work/database"
    socket=$(cd "$work/database" && pwd)
    if [ "${#as_owner[@]}" -gt 0 ]; then chown postgres "$socket"; fi
    # Programs of the database read the directory that they are started in.
    (cd "$socket" && "${as_owner[@]}" "$programs/initdb" --auth=trust --username=corq --encoding=UTF8 --locale=C -D data) \
        >"$work/database.log" 2>&1 || { cat "$work/database.log" >&2; exit 1; }
    (cd "$socket" && exec "${as_owner[@]}" "$programs/postgres" -D data -k "$socket" -h '' -c shared_buffers=512MB -c max_wal_size=8GB) \
        >"$work/database.log" 2>&1 &
    database=$!
    until sql "select 1" >/dev/null 2>&1; do
        kill -0 "$database" 2>/dev/null || { cat "$work/database.log" >&2; exit 1; }
        sleep 0.05
    done
    url="host=$socket user=corq dbname=postgres"
    fleet=(DURABILITY=replicated "FLEET_DATABASE=$url" "SHARDS=$shards" FLEET_NODE=a)
}

# Empties the database and makes a fleet in it. Pages of the run before are written now, not during the next one.
found() {
    sql "drop schema public cascade"
    sql "create schema public"
    sql checkpoint
    "$bin/corq" fleet found --database "$url" --shards "$shards" >>"$work/log"
}

wal_bytes() {
    sql "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')"
}

database_us() { # CPU time of all processes of the database so far, those that have ended as well
    local child children
    read -ra children <"/proc/$database/task/$database/children" || true
    {
        cat "/proc/$database/stat"
        for child in "${children[@]}"; do
            cat "/proc/$child/stat" 2>/dev/null || true
        done
    } | awk -v hz="$(getconf CLK_TCK)" '{ sub(/^.*\) /, ""); t += $12 + $13; if (NR == 1) t += $14 + $15 } END { printf "%.0f\n", t / hz * 1e6 }'
}

now_ms() {
    date +%s%3N
}

calculate() { # expression
    awk "BEGIN { print $1 }"
}

# Pushes jobs, then takes them all, and remembers rate and CPU of whole lives.
lives() { # what it is called, payload bytes, noise bytes, jobs
    local who=$1 jobs=$4 wal cpu rate own
    local load=(--connections 4 --queues 8 --window "$window" --batch 100 --payload-bytes "$2" --noise-bytes "$3" --queue-prefix life --keep)
    wal=$(wal_bytes)
    cpu=$(database_us)
    bench push-batch "${load[@]}" --jobs "$jobs"
    rate=$(figure jobs_per_second)
    own=$(figure cpu_us_per_job)
    take "$who.push" "$(calculate "$(percentile push_us p99) / 1000")"
    bench drain "${load[@]}" --resume
    take "$who.pull" "$(calculate "$(percentile pull_us p99) / 1000")"
    take "$who.ack" "$(calculate "$(percentile ack_us p99) / 1000")"
    take "$who.rate" "$(calculate "1 / (1 / $rate + 1 / $(figure jobs_per_second))")"
    take "$who.cpu" "$(calculate "$own + $(figure cpu_us_per_job)")"
    take "$who.database" "$(calculate "($(database_us) - $cpu) / $jobs")"
    take "$who.wal" "$(calculate "($(wal_bytes) - $wal) / $jobs")"
}

transactions() { # script, of each of 8 clients, payload bytes
    "$programs/pgbench" -n -M prepared -f "$1" -c 8 -j 1 -t "$2" -D "bytes=$3" -h "$socket" -U corq postgres >"$work/pgbench" 2>&1 || {
        cat "$work/pgbench" >&2
        exit 1
    }
}

cat >"$work/insert.sql" <<'SQL'
insert into job (queue, payload) select :client_id::int, convert_to(repeat('x', :bytes::int), 'UTF8') from generate_series(1, 100);
SQL
# Each client has a queue, and work takes no time: better than rows do elsewhere.
cat >"$work/take.sql" <<'SQL'
with taken as (select id from job where queue = :client_id::int and state = 0 order by id limit 100 for update skip locked) delete from job using taken where job.id = taken.id returning job.id, job.payload;
SQL

rows() { # what it is called, payload bytes, jobs
    local who=$1 each=$(($3 / 800)) jobs left wal cpu before seconds
    jobs=$((each * 800))
    sql "drop table if exists job"
    sql "create table job (id bigserial primary key, queue int not null, state smallint not null default 0, payload bytea not null)"
    sql "create index on job (queue, id) where state = 0"
    sql checkpoint
    wal=$(wal_bytes)
    cpu=$(database_us)
    before=$(now_ms)
    transactions "$work/insert.sql" "$each" "$2"
    transactions "$work/take.sql" "$each" "$2"
    seconds=$(calculate "($(now_ms) - $before) / 1000")
    take "$who.rate" "$(calculate "$jobs / $seconds")"
    take "$who.database" "$(calculate "($(database_us) - $cpu) / $jobs")"
    take "$who.wal" "$(calculate "($(wal_bytes) - $wal) / $jobs")"
    left=$(sql "select count(*) from job")
    [ "$left" -eq 0 ] || { echo "fleet: $left rows were not taken" >&2; exit 1; }
}

measure_lives() {
    local size bytes noise jobs
    for size in "${sizes[@]}"; do
        read -r bytes noise jobs <<<"$size"
        found
        start "${fleet[@]}"
        lives "replicated.$bytes" "$bytes" "$noise" "$jobs"
        stop
        start DURABILITY=synced "SHARDS=$shards"
        lives "synced.$bytes" "$bytes" "$noise" "$jobs"
        stop
        rows "rows.$bytes" "$bytes" "$jobs"
    done
}

single() { # what it is called
    local load=(--connections 4 --queues 4 --window 1 --payload-bytes 100 --noise-bytes 64 --seconds 4) rate own
    bench push "${load[@]}"
    rate=$(figure jobs_per_second)
    own=$(figure cpu_us_per_job)
    bench worker "${load[@]}"
    take "$1.rate" "$(calculate "1 / (1 / $rate + 1 / $(figure jobs_per_second))")"
    take "$1.cpu" "$(calculate "$own + $(figure cpu_us_per_job)")"
}

measure_single() {
    found
    start "${fleet[@]}"
    single replicated.single
    stop
    start DURABILITY=synced "SHARDS=$shards"
    single synced.single
    stop
}

echo "insert into bare (block) values (decode(repeat('ab', :bytes::int), 'hex'));" >"$work/commit.sql"

measure_latency() {
    local table bytes part
    found
    start "${fleet[@]}"
    bench open --rate 1000 --seconds 8 --connections 8 --queues 4 --payload-bytes 100 --noise-bytes 64
    stop
    for part in p50 p99; do take "push.$part" "$(percentile push_us $part)"; done
    table=$(sql "select tablename from pg_tables where starts_with(tablename, 'corq_log_') order by pg_total_relation_size(tablename::regclass) desc limit 1")
    bytes=$(sql "select round(avg(octet_length(block))) from $table")
    take row.bytes "$bytes"
    sql "create table bare (id bigserial primary key, block bytea not null)"
    sql "alter table bare alter column block set storage external"
    "$programs/pgbench" -n -M prepared -f "$work/commit.sql" -c 4 -j 1 -R 1000 -T 8 -D "bytes=$bytes" -l --log-prefix="$work/times" \
        -h "$socket" -U corq postgres >"$work/pgbench" 2>&1 || { cat "$work/pgbench" >&2; exit 1; }
    # A time is that since the transaction was due, as far as it was late itself.
    cat "$work"/times.* | awk '{ print $3 - $7 }' | sort -n >"$work/sorted"
    rm "$work"/times.*
    for part in 50 99; do
        take "commit.p$part" "$(awk -v p="$part" '{ v[NR] = $1 } END { print v[int((NR - 1) * p / 100) + 1] }' "$work/sorted")"
    done
}

# Starts a node on an empty directory, and does not wait for it.
launch() { # node
    rm -rf "$work/data-$1"
    node_tcp[$1]=$(free_port)
    node_http[$1]=$(free_port)
    env "${fleet[@]}" HOST=127.0.0.1 TCP_PORT="${node_tcp[$1]}" HTTP_PORT="${node_http[$1]}" DATA_PATH="$work/data-$1" FLEET_NODE="$1" \
        FLEET_LEASE_MS=3000 "${BENCH_SERVER:-$bin/corq}" serve >"$work/node-$1" 2>&1 &
    node_pid[$1]=$!
}

await() { # node, command that succeeds once it is so far
    local node=$1
    shift
    until "$@" >/dev/null 2>&1; do
        kill -0 "${node_pid[$node]}" 2>/dev/null || { cat "$work/node-$node" >&2; exit 1; }
        sleep 0.01
    done
}

# Kills a node, and waits until the other one has answered a push.
fail_over() { # what it is called, who dies, who goes on
    local before
    await "$3" grep -q "standing by, node" "$work/node-$3"
    # The moment between two beats is chance.
    sleep "0.$((RANDOM % 1000))"
    before=$(now_ms)
    kill -9 "${node_pid[$2]}"
    wait "${node_pid[$2]}" 2>/dev/null || true
    [ "$1" != buried ] || "$bin/corq" fleet bury "$2" --database "$url" >>"$work/log"
    await "$3" "$bin/corq" push probe 1 --port "${node_tcp[$3]}"
    take "$1.seconds" "$(calculate "($(now_ms) - $before) / 1000")"
}

measure_failover() {
    found
    launch a
    server=${node_pid[a]} tcp=${node_tcp[a]} http=${node_http[a]}
    await a ready
    bench push-batch --batch 100 --window "$window" --connections 4 --queues 8 --payload-bytes 1000 --noise-bytes 450 --queue-prefix held --keep \
        --jobs $((100000 * scale / 100))
    server=
    launch b
    fail_over lease a b
    launch a
    fail_over buried b a
    stop_nodes
}

prepare_replay() {
    found
    start "${fleet[@]}"
    bench push-batch --batch 1000 --window 2 --connections 4 --queues 8 --payload-bytes 1000 --noise-bytes 450 --queue-prefix held --keep \
        --jobs $((900000 * scale / 100)) --patience 300
}

measure_replay() {
    local before seconds copied ms
    kill -9 "$server"
    wait "$server" 2>/dev/null || true
    before=$(now_ms)
    start "${fleet[@]}"
    seconds=$(calculate "($(now_ms) - $before) / 1000")
    copied=$(sed -n 's/.* \([0-9]*\) MB copied, .*/\1/p' "$work/log" | tail -n 1)
    ms=$(sed -n 's/.* MB were here, in \([0-9]*\) ms.*/\1/p' "$work/log" | tail -n 1)
    take replay.mb "$copied"
    take replay.copy "$(calculate "$copied / $ms * 1000")"
    take replay.rate "$(calculate "$copied / $seconds")"
    take replay.seconds "$seconds"
}

ratio() { # file, file, format: of the first to the second, round by round
    paste "$work/$1" "$work/$2" | awk '{ print $1 / $2 }' >"$work/ratio"
    spread ratio "$3"
}

tell_lives() {
    local size bytes who
    printf '| PUSHB 100, then PULLB + ACKB 100 | lives/s | p99 of a batch, ms: PUSHB | PULLB | ACKB | corq CPU us/life | to synced | PostgreSQL CPU us/life | WAL bytes/life |\n'
    printf '|---|---|---|---|---|---|---|---|---|\n'
    for size in "${sizes[@]}"; do
        bytes=${size%% *}
        for who in replicated synced; do
            printf '| %s, %s bytes | %s | %s | %s | %s | %s |' "$who" "$bytes" "$(spread "$who.$bytes.rate" %.0f)" "$(spread "$who.$bytes.push" %.1f)" \
                "$(spread "$who.$bytes.pull" %.1f)" "$(spread "$who.$bytes.ack" %.1f)" "$(spread "$who.$bytes.cpu" %.2f)"
            if [ "$who" = synced ]; then
                printf ' | – | – |\n'
            else
                printf ' %s | %s | %s |\n' "$(ratio "replicated.$bytes.cpu" "synced.$bytes.cpu" %.2f)" "$(spread "$who.$bytes.database" %.2f)" \
                    "$(spread "$who.$bytes.wal" %.0f)"
            fi
        done
        printf '| a row per job, %s bytes | %s | – | – | – | – | – | %s | %s |\n' "$bytes" "$(spread "rows.$bytes.rate" %.0f)" \
            "$(spread "rows.$bytes.database" %.2f)" "$(spread "rows.$bytes.wal" %.0f)"
    done
}

tell_single() {
    printf '| PUSH, then PULL + ACK, 1 in flight | lives/s | corq CPU us/life | to synced |\n|---|---|---|---|\n'
    printf '| replicated | %s | %s | %s |\n' "$(spread replicated.single.rate %.0f)" "$(spread replicated.single.cpu %.2f)" \
        "$(ratio replicated.single.cpu synced.single.cpu %.2f)"
    printf '| synced | %s | %s | |\n' "$(spread synced.single.rate %.0f)" "$(spread synced.single.cpu %.2f)"
}

tell_latency() {
    printf '| 1,000 a second | p50 us | p99 us |\n|---|---|---|\n'
    printf '| a push, beside workers | %s | %s |\n' "$(spread push.p50 %.0f)" "$(spread push.p99 %.0f)"
    printf '| the commit of a row of %s bytes | %s | %s |\n' "$(spread row.bytes %.0f)" "$(spread commit.p50 %.0f)" "$(spread commit.p99 %.0f)"
}

tell_failover() {
    printf '| kill -9, the other node has no files | seconds until a push is answered |\n|---|---|\n'
    printf '| lease of 3 s | %s |\n| buried | %s |\n' "$(spread lease.seconds %.2f)" "$(spread buried.seconds %.2f)"
}

tell_replay() {
    printf '| takeover without files | MB of log | MB/s until ready | MB/s copied | seconds |\n|---|---|---|---|---|\n'
    printf '| jobs of 1,000 bytes | %s | %s | %s | %s |\n' "$(spread replay.mb %.0f)" "$(spread replay.rate %.0f)" "$(spread replay.copy %.0f)" \
        "$(spread replay.seconds %.2f)"
}

start_database
for part in "${parts[@]}"; do
    [ "$part" != replay ] || prepare_replay
    for round in $(seq "$rounds"); do
        echo "$part, round $round of $rounds" >&2
        "measure_$part"
    done
    stop
done

printf '%s, %s CPUs, %s, %s shards, all on one machine; %s rounds; 4 connections with %s batches in flight.\n' "$(uname -sr)" "$(nproc)" \
    "$("$programs/postgres" --version)" "$shards" "$rounds" "$window"
printf 'Median (least–most). Two fifths of the bytes of a job in the log cannot be compressed.\n'
for part in "${parts[@]}"; do
    echo
    "tell_$part"
done
