package kube

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forkd/forkd/internal/kube/objects/agents"
	"github.com/forkd/forkd/internal/kube/objects/extensions"
	"github.com/forkd/forkd/internal/kube/objects/forkdkinds"
	"github.com/forkd/forkd/internal/testing/fakecluster"
)

// replica is a process that is started again when it ends.
type replica struct {
	name string

	mu  sync.Mutex // guards the fields below
	cmd *exec.Cmd
	end bool
}

// programs are forkd-kube as processes, as Deployments run them.
type programs struct {
	w       *world
	dir     string
	program string
	key     string // file with the nodes' token
	all     []*replica
	running sync.WaitGroup
}

func (w *world) programs() *programs {
	w.t.Helper()
	dir := w.t.TempDir()
	p := &programs{w: w, dir: dir, program: filepath.Join(dir, "forkd-kube"), key: filepath.Join(dir, "key")}
	if out, err := exec.CommandContext(w.t.Context(), "go", "build", "-o", p.program, "../../cmd/forkd-kube").CombinedOutput(); err != nil {
		w.t.Fatalf("%v: %s", err, out)
	}
	if err := os.WriteFile(p.key, []byte(fakecluster.Token+"\n"), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(p.close)
	return p
}

// keep runs the program until the test ends.
func (p *programs) keep(name string, args ...string) *replica {
	p.w.t.Helper()
	r := &replica{name: name}
	p.all = append(p.all, r)
	log, err := os.Create(filepath.Join(p.dir, name+".log"))
	if err != nil {
		p.w.t.Fatal(err)
	}
	p.running.Go(func() {
		defer log.Close()
		for {
			cmd := exec.Command(p.program, args...) // #nosec G204 -- the test's own
			cmd.Stdout, cmd.Stderr = log, log
			r.mu.Lock()
			if r.end {
				r.mu.Unlock()
				return
			}
			err := cmd.Start()
			r.cmd = cmd
			r.mu.Unlock()
			if err == nil {
				_ = cmd.Wait()
			}
			time.Sleep(200 * time.Millisecond) // elapses: the pause before a restart
		}
	})
	return r
}

func (p *programs) close() {
	for _, r := range p.all {
		r.mu.Lock()
		r.end = true
		r.mu.Unlock()
		r.kill()
	}
	p.running.Wait()
	if !p.w.t.Failed() {
		return
	}
	for _, r := range p.all {
		b, _ := os.ReadFile(filepath.Join(p.dir, r.name+".log"))
		lines := strings.Split(string(b), "\n")
		p.w.t.Logf("%s:\n%s", r.name, strings.Join(lines[max(0, len(lines)-40):], "\n"))
	}
}

// gateway starts a gateway, and returns its address.
func (p *programs) gateway() (*replica, string) {
	p.w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.w.t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close() // the gateway binds it, after each start
	return p.keep("gateway", "gateway", "--listen", address, "--nodes", p.w.cluster.List, "--poll-interval", "500ms"), "http://" + address
}

// operators starts operators, which have the rights of the chart.
func (p *programs) operators(n int, gateway string) (all []*replica) {
	p.w.t.Helper()
	p.w.rights()
	kubeconfig := p.w.plane.Kubeconfig(p.w.t, "operator")
	for i := range n {
		all = append(all, p.keep(fmt.Sprintf("operator-%d", i), "operator", "--url", gateway, "--key-file", p.key,
			"--nodes", p.w.cluster.List, "--kubeconfig", kubeconfig, "--interval", "1s", "--lease-duration", "3s"))
	}
	return all
}

// rights gives the user operator the rights of packaging/kubernetes/rbac.yaml, and no others.
func (w *world) rights() {
	w.t.Helper()
	text, err := os.ReadFile("../../packaging/kubernetes/rbac.yaml")
	if err != nil {
		w.t.Fatal(err)
	}
	user := []rbac.Subject{{APIGroup: rbac.GroupName, Kind: "User", Name: "operator"}}
	decoder := serializer.NewCodecFactory(w.kube.Scheme()).UniversalDeserializer()
	for _, one := range strings.Split(string(text), "\n---\n") {
		o, _, err := decoder.Decode([]byte(one), nil, nil)
		if err != nil {
			w.t.Fatal(err)
		}
		switch o := o.(type) {
		case *rbac.ClusterRoleBinding:
			o.Subjects = user
		case *rbac.RoleBinding:
			o.Subjects = user
		}
		w.create(o.(kube.Object))
	}
}

func (r *replica) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd != nil && r.cmd.Process != nil {
		_ = r.cmd.Process.Kill()
	}
}

// load makes and deletes claims and forks until ctx ends, whether the API server answers or not.
type load struct {
	w  *world
	mu sync.Mutex // guards the fields below

	most, count int // objects of a worker, and children of a fork

	claims, forks map[string]bool   // by name; false: deleted
	acknowledged  map[string]string // sandboxes of claims that were seen ready
}

func (l *load) run(ctx context.Context, worker int) {
	rnd := rand.New(rand.NewPCG(7, uint64(worker))) // #nosec G404 -- no secret
	for i := 0; ctx.Err() == nil && i < l.most; i++ {
		name := fmt.Sprintf("w%d-%d", worker, i)
		fork := rnd.IntN(4) == 0
		var o kube.Object = newClaim("team-a", name, "pool")
		if fork {
			o = newFork("team-a", name, int32(2+rnd.IntN(l.count-1)), forkdkinds.ForkSource{Snapshot: tag}) // #nosec G115 -- small
		}
		if !l.insist(ctx, func() error { return l.w.kube.Create(ctx, o.DeepCopyObject().(kube.Object)) }, apierrors.IsAlreadyExists) {
			return // it may exist: see settle
		}
		l.note(name, fork, true)
		switch rnd.IntN(4) {
		case 0: // deleted at once, or while its sandbox is made
			time.Sleep(time.Duration(rnd.IntN(200)) * time.Millisecond) // elapses: another moment each time
			if l.insist(ctx, func() error { return l.w.kube.Delete(ctx, o.DeepCopyObject().(kube.Object)) }, apierrors.IsNotFound) {
				l.note(name, fork, false)
			}
		case 1:
			if !fork {
				l.watch(ctx, name)
			}
		}
	}
}

func (l *load) note(name string, fork, alive bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if fork {
		l.forks[name] = alive
	} else {
		l.claims[name] = alive
	}
}

// insist repeats a request until it has an answer.
func (l *load) insist(ctx context.Context, do func() error, fine func(error) bool) bool {
	for ctx.Err() == nil {
		if err := do(); err == nil || fine(err) {
			return true
		}
		time.Sleep(50 * time.Millisecond) // elapses: a client's pause before it repeats
	}
	return false
}

// watch waits for a claim, and notes its sandbox.
func (l *load) watch(ctx context.Context, name string) {
	c := newClaim("team-a", name, "")
	for ctx.Err() == nil {
		if err := l.w.kube.Get(ctx, kube.ObjectKeyFromObject(c), c); err == nil && meta.IsStatusConditionTrue(c.Status.Conditions, agents.Ready) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.acknowledged[name] = c.Status.Sandbox.Name
			return
		}
		time.Sleep(20 * time.Millisecond) // elapses: the client polls
	}
}

// killsOfEachPart makes and deletes objects, while the processes around the nodes are killed, and over VMs the nodes'
// daemons as well.
func killsOfEachPart(t *testing.T, s site) {
	w := s.start(t, 3, "operator")
	w.pool("team-a", "pool", 0, nil)
	run := w.programs()
	gateway, url := run.gateway()
	ops := run.operators(2, url)
	for _, n := range w.cluster.Nodes {
		n.Link.Hook(func(rw http.ResponseWriter, r *http.Request, pass http.Handler) {
			if r.Method == http.MethodPost && r.URL.Path == "/v1/sandboxes" {
				switch rand.IntN(20) { // #nosec G404 -- no secret
				case 0: // the sandboxes are made, and the answer is lost
					pass.ServeHTTP(&discard{h: http.Header{}}, r)
					dead(rw, r, pass)
					return
				case 1, 2, 3, 4, 5:
					time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond) // elapses: kills meet requests in progress
				}
			}
			pass.ServeHTTP(rw, r)
		})
	}
	first := newClaim("team-a", "first", "pool")
	w.create(first)
	w.ready(first)
	ctx, stop := context.WithCancel(t.Context())
	l := &load{w: w, most: pick(s, 100000, 12), count: pick(s, 16, 5), claims: map[string]bool{"first": true}, forks: map[string]bool{}, acknowledged: map[string]string{}}
	var workers sync.WaitGroup
	for i := range pick(s, 4, 2) {
		workers.Go(func() { l.run(ctx, i) })
	}
	kills := map[string]int{}
	for i := range 15 {
		time.Sleep(time.Duration(500+rand.IntN(2000)) * time.Millisecond) // elapses: work between kills
		switch i % 5 {
		case 0, 2: // both, so that the leader is among them
			for _, r := range ops {
				r.kill()
			}
			kills["operators"]++
		case 1:
			w.plane.KillAPI()
			w.plane.StartAPI(t)
			kills["API server"]++
		case 3:
			w.plane.KillEtcd()
			w.plane.StartEtcd(t)
			kills["etcd"]++
		case 4:
			gateway.kill()
			kills["gateway"]++
		}
		if s.vms != nil && i%3 == 1 {
			s.vms.kill(t, daemon(w.cluster.Nodes[i/3%3].Name))
			kills["daemons"]++
		}
	}
	stop()
	workers.Wait()
	t.Logf("killed %v; %d claims, %d forks, %d claims acknowledged", kills, len(l.claims), len(l.forks), len(l.acknowledged))
	w.settle(l)
}

// discard takes an answer without a reader.
type discard struct{ h http.Header }

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

// settle waits until objects and sandboxes agree, and compares them with the load's notes.
func (w *world) settle(l *load) {
	w.t.Helper()
	var why string
	began := time.Now()
	w.within(2*time.Minute, func() string { return why }, func() bool {
		why = w.disagree(l)
		return why == ""
	})
	w.t.Logf("objects and sandboxes agree after %s", time.Since(began).Round(time.Millisecond))
}

// disagree returns the first difference, or an empty string.
func (w *world) disagree(l *load) string {
	ctx := w.t.Context()
	var claims extensions.SandboxClaimList
	var forks forkdkinds.SandboxForkList
	var objects agents.SandboxList
	for _, list := range []kube.ObjectList{&claims, &forks, &objects} {
		if err := w.kube.List(ctx, list, kube.InNamespace("team-a")); err != nil {
			return err.Error()
		}
	}
	list, err := w.forkd.ListSandboxes(ctx)
	if err != nil {
		return err.Error()
	}
	of, total := owned(list), 0
	there := map[string]bool{}
	for _, c := range claims.Items {
		there[c.Name] = true
		mine := of[string(c.UID)]
		total += len(mine)
		if alive, known := l.claims[c.Name]; known && !alive {
			return "deleted claim " + c.Name + " is back"
		}
		if len(mine) != 1 || mine[0] != c.Status.Sandbox.Name || !meta.IsStatusConditionTrue(c.Status.Conditions, agents.Ready) {
			return fmt.Sprintf("claim %s names %q, its sandboxes are %v, conditions %+v", c.Name, c.Status.Sandbox.Name, mine, c.Status.Conditions)
		}
		if ack := l.acknowledged[c.Name]; ack != "" && ack != mine[0] {
			return fmt.Sprintf("claim %s was acknowledged with %s, and has %s", c.Name, ack, mine[0])
		}
	}
	if len(objects.Items) != len(claims.Items) {
		return fmt.Sprintf("%d Sandboxes of %d claims", len(objects.Items), len(claims.Items))
	}
	for _, f := range forks.Items {
		there[f.Name] = true
		mine := of[string(f.UID)]
		total += len(mine)
		if f.DeletionTimestamp != nil || len(mine) != int(f.Spec.Count) || int(f.Status.Ready) != len(mine) {
			return fmt.Sprintf("fork %s of %d has %d sandboxes, and reports %d", f.Name, f.Spec.Count, len(mine), f.Status.Ready)
		}
		for _, c := range f.Status.Children {
			if !strings.Contains(strings.Join(mine, " "), c.ID) {
				return fmt.Sprintf("child %s of %s is missing", c.ID, f.Name)
			}
		}
	}
	if total != len(list) {
		return fmt.Sprintf("%d sandboxes belong to no object", len(list)-total)
	}
	for _, notes := range []map[string]bool{l.claims, l.forks} {
		for name, alive := range notes {
			if alive && !there[name] {
				return "object " + name + " is lost"
			}
		}
	}
	return ""
}
