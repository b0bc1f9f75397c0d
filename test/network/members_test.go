package network

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// member forks a sandbox, into a private network if join is not empty. Its server is on eth0 and
// sends back what comes.
func (w *world) member(t *testing.T, join string) string {
	t.Helper()
	n := 1
	req := api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &n, Net: api.NetNone}
	if join != "" {
		network, alias, _ := strings.Cut(join, ":")
		req.NetJoin = &api.NetJoin{Network: network, Alias: alias}
	}
	res, err := w.Client.Fork(t.Context(), req)
	if err != nil || len(res.Failed()) > 0 {
		t.Fatalf("fork %s: %+v, %v", join, res.Failed(), err)
	}
	id := res.Sandboxes[0].ID
	t.Cleanup(func() {
		if err := w.Kill(id); err != nil && !client.IsNotFound(err) {
			t.Error(err)
		}
	})
	return id
}

const serveEcho = `
server = Server("0.0.0.0", 5432)
local = Server("127.0.0.1", 5433)
datagram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagram.bind(("0.0.0.0", 5432))
def answer():
    while True:
        data, far = datagram.recvfrom(2000)
        datagram.sendto(data, far)
threading.Thread(target=answer, daemon=True).start()
`

// Members of a private network find each other by name and connect both ways, with no other network.
// Others reach neither them nor their names.
func TestMembersOfAPrivateNetwork(t *testing.T) {
	w := shared(t, "example.com")
	for _, name := range []string{"shop", "rival"} {
		if _, err := w.Client.PrivateNetworks().Create(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := w.Client.PrivateNetworks().Remove(context.Background(), name); err != nil {
				t.Error(err)
			}
		})
	}
	db, web := w.member(t, "shop:db"), w.member(t, "shop:web")
	rival := w.member(t, "rival:db")
	w.run(t, db, serveEcho)
	w.run(t, web, serveEcho)

	for from, to := range map[string]string{web: "db.forkd.internal", db: "web.forkd.internal"} {
		w.wantText(t, from, `exchange(dial("`+to+`", 5432), "hello")`, "hello")
	}
	// Segments of up to 64 KiB pass whole.
	if got := value[int](t, w, web, `len(exchange(dial("db.forkd.internal", 5432), "0123456789abcdef" * 8192))`); got != 1<<17 {
		t.Errorf("of 128 KiB, %d bytes come back", got)
	}
	w.wantText(t, web, `udp("db.forkd.internal", 5432, "datagram")`, "datagram")
	w.wantText(t, web, `ping("`+value[[]string](t, w, web, `addresses("db.forkd.internal")`)[0]+`")`, "forkd")
	w.wantRefused(t, web, `dial("db.forkd.internal", 80)`, "ECONNREFUSED")
	w.wantRefused(t, web, `dial("db.forkd.internal", 5433)`, "ECONNREFUSED") // a server on loopback
	w.wantRefused(t, web, `udp("db.forkd.internal", 80, "x")`, "ECONNREFUSED")
	w.wantRefused(t, web, `addresses("none.forkd.internal")`, "EAI_NONAME")

	for _, outsider := range []string{rival, w.guest} {
		w.wantRefused(t, outsider, `addresses("web.forkd.internal")`, "EAI_NONAME")
		for _, addr := range []string{"192.0.0.65", "192.0.0.66"} {
			if outsider == rival && addr == "192.0.0.65" {
				continue // its own
			}
			w.wantRefused(t, outsider, `dial("`+addr+`", 5432)`, "ECONNREFUSED")
		}
	}
	w.set(t, web, api.SetNetworkRequest{Network: &api.NetworkPolicy{Deny: []string{"db.forkd.internal:5432"}}})
	w.wantRefused(t, web, `dial("db.forkd.internal", 5432)`, "ECONNREFUSED")
	if log := w.refusals(t, web); !strings.Contains(log, "db.forkd.internal") {
		t.Errorf("the log has no refused member: %s", log)
	}
	w.wantText(t, db, `exchange(dial("web.forkd.internal", 5432), "hello")`, "hello")
	w.set(t, web, api.SetNetworkRequest{Net: api.NetNone})

	w.run(t, web, `open_one = dial("db.forkd.internal", 5432)`)
	w.killNet(t)
	w.wantText(t, web, `exchange(open_one, "after forkd-net")`, "after forkd-net")

	if _, err := (client.Life{Client: w.Client}).Pause(t.Context(), db, api.PauseRequest{}); err != nil {
		t.Fatal(err)
	}
	w.wantRefused(t, web, `exchange(open_one, "to a paused member")`, "ECONNRESET", "EPIPE")
	w.wantRefused(t, web, `addresses("db.forkd.internal")`, "EAI_NONAME")
	if _, err := (client.Life{Client: w.Client}).Resume(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	w.wantText(t, web, `exchange(dial("db.forkd.internal", 5432), "resumed")`, "resumed")
}

// killNet kills forkd-net and waits for its successor.
func (w *world) killNet(t *testing.T) {
	t.Helper()
	before := w.NetProcesses()
	for _, pid := range before {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Signal(syscall.SIGKILL)
		}
	}
	eventually(t, "another forkd-net", func() bool {
		for _, pid := range w.NetProcesses() {
			for _, old := range before {
				if pid != old {
					return true
				}
			}
		}
		return false
	})
}
