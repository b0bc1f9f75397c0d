package network

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// serveStore is a database of one table. Rows are visible to others once their connection has committed. Counted
// connections send consecutive numbers.
const serveStore = `
class Store(threading.Thread):
    def __init__(self, port):
        super().__init__(daemon=True)
        self.rows, self.accepted, self.gaps = [], 0, []
        self.listener = socket.create_server(("0.0.0.0", port))
        self.start()
    def run(self):
        while True:
            s, _ = self.listener.accept()
            self.accepted += 1
            threading.Thread(target=self.serve, args=(s,), daemon=True).start()
    def serve(self, s):
        own, last = [], 0
        for line in s.makefile():
            word, _, rest = line.strip().partition(" ")
            if word == "insert":
                own.append(rest)
            elif word == "commit":
                self.rows, own = self.rows + own, []
            elif word == "rollback":
                own = []
            elif word == "count":
                if int(rest) != last + 1:
                    self.gaps.append((last, rest))
                last = int(rest)
            s.sendall((",".join(self.rows + own) + "\n").encode() if word != "count" else line.encode())
store = Store(5432)
`

const useStore = `
link = dial("db.forkd.internal", 5432)
place = str(link.getsockname())
def ask(text):
    link.sendall(text.encode() + b"\n")
    return link.makefile().readline().strip()
class Counter(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.n, self.error = 0, ""
        self.link = dial("db.forkd.internal", 5432)
        self.start()
    def run(self):
        try:
            lines = self.link.makefile()
            while True:
                self.n += 1
                self.link.sendall(b"count %d\n" % self.n)
                got = lines.readline().strip()
                if got != "count %d" % self.n:
                    raise ValueError("%r instead of %d" % (got, self.n))
                time.sleep(0.05)
        except Exception as e:
            self.error = repr(e)
counter = Counter()
`

// shopOf makes a private network with a database and its client in mid-transaction.
func (w *world) shopOf(t *testing.T) (db, web string) {
	t.Helper()
	if _, err := w.Client.PrivateNetworks().Create(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Client.PrivateNetworks().Remove(context.Background(), "shop"); err != nil {
			t.Error(err)
		}
	})
	db, web = w.member(t, "shop:db"), w.member(t, "shop:web")
	w.run(t, db, serveStore)
	w.run(t, web, useStore)
	w.wantText(t, web, `ask("insert first")`, "first")
	return db, web
}

// forkGroup copies a network. The copies are removed at the end of the test.
func (w *world) forkGroup(t *testing.T, n int) api.ForkGroupResult {
	t.Helper()
	res, err := w.Client.PrivateNetworks().Fork(t.Context(), "shop", api.ForkGroupRequest{N: &n})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, c := range res.Copies {
			w.removeCopy(t, c)
		}
	})
	for i, c := range res.Copies {
		if c.Error != "" || len(c.Sandboxes) != 2 {
			t.Fatalf("copy %d: %+v", i, c)
		}
	}
	return res
}

func (w *world) removeCopy(t *testing.T, c api.GroupCopy) {
	t.Helper()
	for _, s := range c.Sandboxes {
		if err := w.Kill(s.ID); err != nil && !client.IsNotFound(err) {
			t.Error(err)
		}
	}
	if err := w.Client.PrivateNetworks().Remove(context.Background(), c.Network); err != nil && !client.IsNotFound(err) {
		t.Error(err)
	}
}

// A database and its client in mid-transaction are forked: each copy of the client commits over the connection that it
// inherited, and the original rolls back. Connections to the outside are the original's.
func TestAGroupForkKeepsItsTransactions(t *testing.T) {
	kvmtest.Drawn(t)
	w := shared(t, "example.com")
	db, web := w.shopOf(t)
	w.allow(t, web, "example.com")
	w.run(t, web, `download = Download("example.com", `+handPort+`)`)
	far := send(w.far.conn(t))
	eventually(t, "a begun download", func() bool { return value[int](t, w, web, `download.got`) > 0 })
	eventually(t, "some counting", func() bool { return value[int](t, w, web, `counter.n`) > 3 })

	res := w.forkGroup(t, 2)
	t.Logf("the group was paused for %.1f ms, the copies took %.0f ms", res.PauseMS, res.TotalMS)
	for i, c := range res.Copies {
		copyOf := map[string]string{}
		for _, s := range c.Sandboxes {
			copyOf[s.NetJoin.Alias] = s.ID
		}
		w.wantText(t, copyOf["web"], fmt.Sprintf(`ask("insert own-%d")`, i), fmt.Sprintf("first,own-%d", i))
		w.wantText(t, copyOf["web"], `ask("commit")`, fmt.Sprintf("first,own-%d", i))
		w.wantText(t, copyOf["db"], `",".join(store.rows)`, fmt.Sprintf("first,own-%d", i))
		w.wantCounting(t, copyOf["db"], copyOf["web"])
		if end := w.downloaded(t, copyOf["web"]); end.Error != "ECONNRESET" {
			t.Errorf("the download of copy %d ends with %s, want ECONNRESET", i, end.outcome)
		}
		w.wantText(t, copyOf["web"], `ask("insert third")`, fmt.Sprintf("first,own-%d,third", i))
	}
	w.wantText(t, web, `ask("rollback")`, "")
	w.wantText(t, db, `",".join(store.rows)`, "")
	w.wantCounting(t, db, web)
	if out := value[*download](t, w, web, `download.out`); out != nil {
		t.Errorf("the original's download has ended: %s", out.outcome)
	}
	far.end(t)

	// Plain branches of a copy inherit no connection.
	c := res.Copies[0].Sandboxes[1]
	child := w.branch(t, c.ID, api.BranchRequest{Tag: "of-a-copy", N: 1})[0]
	w.wantRefused(t, child.ID, `ask("rollback")`, "ECONNRESET", "EPIPE")
}

// wantCounting checks that a counted connection goes on without a gap, and is the one of the beginning.
func (w *world) wantCounting(t *testing.T, db, web string) {
	t.Helper()
	before := value[int](t, w, web, `counter.n`)
	eventually(t, "counting in "+web, func() bool { return value[int](t, w, web, `counter.n`) > before+3 })
	w.wantText(t, web, `counter.error`, "")
	w.wantText(t, db, `str(store.gaps)`, "[]")
	if got := value[int](t, w, db, `store.accepted`); got != 2 {
		t.Errorf("%s has accepted %d connections, want 2", db, got)
	}
	if !value[bool](t, w, web, `str(link.getsockname()) == place`) {
		t.Errorf("the connection of %s has moved", web)
	}
}

// figures are sorted durations in milliseconds.
type figures []float64

func (f figures) median() float64 { slices.Sort(f); return f[len(f)/2] }

// The pause of a group is about that of a live branch of one member. The figures are logged: the bound is wide, because
// an emulated machine has two slow CPUs.
func TestThePauseOfAGroup(t *testing.T) {
	kvmtest.Soak(t)
	w := shared(t, "example.com")
	db, _ := w.shopOf(t)
	var alone, together figures
	for i := range 3 {
		tag := fmt.Sprintf("alone-%d", i)
		r, err := w.Client.Branch(t.Context(), db, api.BranchRequest{Tag: tag})
		if err != nil {
			t.Fatal(err)
		}
		alone = append(alone, *r.PauseMS)
		res := w.forkGroup(t, 1)
		together = append(together, res.PauseMS)
		w.removeCopy(t, res.Copies[0])
		if err := w.Client.DeleteSnapshot(t.Context(), tag, client.DeleteOptions{Force: true}); err != nil {
			t.Fatal(err)
		}
	}
	ratio := together.median() / alone.median()
	t.Logf("pause of one live branch %.2f ms, of a group of two %.2f ms: %.2f times (%v, %v)", alone.median(),
		together.median(), ratio, alone, together)
	if ratio > 8 {
		t.Errorf("the pause of a group is %.1f times that of a branch", ratio)
	}
}
