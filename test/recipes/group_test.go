package recipes

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// serveNetwork starts the server of postgres-fixture again, for the members of a private network.
const serveNetwork = `set -e
bin=/usr/lib/postgresql/15/bin
$bin/pg_ctl --silent --pgdata ~/pgdata --mode fast --wait stop
echo 'host all all 192.0.0.64/26 trust' >>~/pgdata/pg_hba.conf
setsid $bin/postgres -D ~/pgdata -c unix_socket_directories=/tmp -c 'listen_addresses=*' >~/log 2>&1 </dev/null &
until $bin/pg_isready --quiet --host /tmp --dbname fixture; do sleep 0.2; done`

// session begins a client whose input is a pipe, so that later commands use the same connection.
const session = `set -e
mkfifo ~/in
setsid sleep infinity >~/in 2>/dev/null &
setsid stdbuf -oL psql --no-psqlrc -qAt -h db.forkd.internal <~/in >~/out 2>&1 &
disown -a`

// ask returns a script that sends statements to the session, and prints the answer.
func ask(statements string) string {
	return fmt.Sprintf(`: >~/out.last; before=$(wc -l <~/out)
echo %q >~/in; echo "SELECT 'answered';" >~/in
for i in $(seq 600); do tail -n +$((before + 1)) ~/out >~/out.last; grep -q ^answered ~/out.last && break; sleep 0.1; done
grep -v ^answered ~/out.last; pgrep -cx psql`, statements)
}

// made lists the rows that were added to the fixture.
const made = `psql -Atc "SELECT coalesce(string_agg(cents::text, ',' ORDER BY cents), '') FROM orders WHERE customer = 1 AND cents IN (1, 10, 11)"`

// TestAGroupInATransaction forks PostgreSQL and its client in mid-transaction. Each copy commits rows of its own over
// the connection that it inherited, and the original rolls back.
func TestAGroupInATransaction(t *testing.T) {
	kvmtest.Soak(t)
	m := machine(t)
	c := dial(t, m)
	m.Image(t, "postgres-fixture", "postgres-fixture")
	if _, err := c.PrivateNetworks().Create(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeNetwork(t, c, "shop") })
	db, web := member(t, c, "db"), member(t, c, "web")
	sh(t, c, db, serveNetwork)
	sh(t, c, web, session)
	const insert = "INSERT INTO orders (customer, cents, made) VALUES (1, %d, now());"
	began := sh(t, c, web, ask("BEGIN; "+fmt.Sprintf(insert, 1)+" SELECT pg_backend_pid();"))
	backend, _, ok := strings.Cut(began, "\n")
	if !ok || backend == "" {
		t.Fatalf("the session answers %q", began)
	}

	n := 2
	res, err := c.PrivateNetworks().Fork(t.Context(), "shop", api.ForkGroupRequest{N: &n})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, g := range res.Copies {
			for _, s := range g.Sandboxes {
				kill(t, c, s.ID)
			}
			removeNetwork(t, c, g.Network)
		}
	})
	t.Logf("a pause of %.1f ms, %.0f ms for two copies", res.PauseMS, res.TotalMS)
	for i, g := range res.Copies {
		if g.Error != "" || len(g.Sandboxes) != 2 {
			t.Fatalf("copy %d: %+v", i, g)
		}
		of := map[string]string{}
		for _, s := range g.Sandboxes {
			of[s.NetJoin.Alias] = s.ID
		}
		got := sh(t, c, of["web"], ask(fmt.Sprintf(insert, 10+i)+" COMMIT; SELECT pg_backend_pid();"))
		if got != began {
			t.Errorf("copy %d answers %q, want %q: the same connection", i, got, began)
		}
		if got, want := sh(t, c, of["db"], made), fmt.Sprintf("1,%d", 10+i); got != want {
			t.Errorf("copy %d has the rows %s, want %s", i, got, want)
		}
	}
	if got := sh(t, c, web, ask("ROLLBACK; SELECT pg_backend_pid();")); got != began {
		t.Errorf("the original answers %q, want %q: the same connection", got, began)
	}
	if got := sh(t, c, db, made); got != "" {
		t.Errorf("the original has the rows %s, want none", got)
	}
}

func member(t *testing.T, c *client.Client, alias string) string {
	t.Helper()
	res, err := c.Fork(t.Context(), api.CreateSandboxesRequest{SnapshotTag: "postgres-fixture",
		NetJoin: &api.NetJoin{Network: "shop", Alias: alias}})
	if err != nil || len(res.OK()) != 1 {
		t.Fatalf("fork %s: %v, %+v", alias, err, res)
	}
	id := res.OK()[0].ID
	t.Cleanup(func() { kill(t, c, id) })
	return id
}

func sh(t *testing.T, c *client.Client, id, script string) string {
	t.Helper()
	out, err := use{script: script}.run(t.Context(), c, id)
	if err != nil {
		t.Fatalf("sandbox %s: %v", id, err)
	}
	return out
}

func kill(t *testing.T, c *client.Client, id string) {
	t.Helper()
	if err := c.Kill(context.Background(), id); err != nil {
		t.Error(err)
	}
}

func removeNetwork(t *testing.T, c *client.Client, name string) {
	t.Helper()
	if err := c.PrivateNetworks().Remove(context.Background(), name); err != nil {
		t.Error(err)
	}
}
