// Package demo runs the main job on real input and proves its result. It forks N children of a warm
// Python, and checks each for the parent's heap, its own randomness and private variables. It owns
// the checks and their figures. The command makes the snapshot and prints the table. The trap: the
// checks must be able to fail, so they compare all children.
package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// Warm runs in the parent, before the snapshot. It computes a matrix that only the parent computes.
// The matrix is small, because each child repeats the computation, and floating point is slow on
// emulated processors.
const Warm = `demo_matrix = np.random.default_rng(20).random((50, 50))
demo_sum = float((demo_matrix @ demo_matrix).sum())`

// first is the first code in each child. It returns whether numpy is loaded, whether the parent's
// matrix is intact, a number from each random generator, and whether a sibling has set `mine`.
const first = `import sys, random, os
demo_answer = ('numpy' in sys.modules, demo_sum == float((demo_matrix @ demo_matrix).sum()), 'mine' in globals(),
    repr(np.random.random()), repr(random.random()), os.urandom(8).hex(), os.environ.get('FORKD_INDEX'))
mine = int(os.environ['FORKD_INDEX'])
' '.join(map(str, demo_answer))`

// Result has the demo's findings. Times are milliseconds from the fork's request.
type Result struct {
	Children      int       `json:"children"`            // number of children that the fork made
	ArmedWallMS   float64   `json:"armed_wall_ms"`       // until the last child was restored at its start gate
	ForkWallMS    float64   `json:"fork_wall_ms"`        // until the fork's answer was complete
	AnswerP50MS   float64   `json:"first_answer_ms_p50"` // median of the children's first answers
	AnswerP99MS   float64   `json:"first_answer_ms_p99"` // 99th percentile of the first answers
	Pool          int       `json:"pool"`                // ready shells when the request arrived
	VMMAnonKiB    int64     `json:"vmm_anon_kib"`        // VMM memory without the guest's, the mean of up to 10 children
	GuestDirtyKiB int64     `json:"guest_dirty_kib"`     // private dirty pages of a guest, the mean of up to 10 children
	KillWallMS    float64   `json:"kill_wall_ms"`        // duration of ending all children but one
	Branch        *Branched `json:"branch,omitempty"`    // absent if no child was branched
	// Network is absent if policies cannot allow ports of this host.
	Network  *Networked `json:"network,omitempty"`
	Failures []string   `json:"failures"` // failed checks and errors; empty if all is well
}

// answer is the answer of one child.
type answer struct {
	numpy, matrix, tainted bool
	random                 [3]string // numpy, random, the kernel
	index                  int
	at                     time.Duration
}

// Config holds the settings of the demo.
type Config struct {
	Tag string // snapshot to fork, made with Warm
	N   int    // children
	// Reach is set if the daemon lets policies name ports of this host.
	Reach bool
	// Forked is called when the pool of Tag is no longer needed. Refilling it would take CPU time
	// from the rest of the demo.
	Forked func()
	// Say receives progress messages.
	Say func(string)
}

// Run forks children, checks them, and ends them.
func Run(ctx context.Context, c *client.Client, cfg Config) (Result, error) {
	say := cfg.Say
	say(fmt.Sprintf("forking %d children, and asking each as soon as it is ready", cfg.N))
	began := time.Now()
	asked := newQuestions(ctx, c, began)
	fork, err := c.ForkEach(ctx, api.CreateSandboxesRequest{SnapshotTag: cfg.Tag, N: &cfg.N}, asked.first)
	forked := time.Since(began)
	cfg.Forked()
	answers, unanswered := asked.wait()
	if err != nil && len(fork.OK()) == 0 {
		return Result{}, err
	}
	res := Result{Pool: fork.PoolReady, ForkWallMS: millis(forked),
		ArmedWallMS: millis(fork.ArmedWall), Failures: []string{}}
	for _, f := range fork.Failed() {
		res.fail("child %d: %s", f.Index, f.Error)
	}
	children := fork.OK()
	res.Children = len(children)
	killed := false
	kill := func() {
		if !killed {
			killed = true
			each(children, func(_ int, sb api.SandboxInfo) error { return c.Kill(context.WithoutCancel(ctx), sb.ID) })
		}
	}
	defer kill()
	res.failAll(err)
	res.failAll(unanswered)
	say("asking each again")
	res.failAll(again(ctx, c, children))
	res.check(answers)
	res.times(answers)
	if err := res.memory(ctx, c, children); err != nil {
		return res, err
	}
	say("ending them")
	start := time.Now()
	if len(children) > 0 { // the first child is needed for some time
		last := children[0]
		children = children[1:]
		defer func() { c.Kill(context.WithoutCancel(ctx), last.ID) }()
		kill()
		res.KillWallMS = millis(time.Since(start))
		say("branching one in mid-computation")
		res.failAll(res.branch(ctx, c, last))
		if cfg.Reach {
			say("allowing it one page of this host")
			res.failAll(res.network(ctx, c, last))
		}
	}
	return res, ctx.Err()
}

// questions asks each child the first questions, several at a time, while other children are still
// being made.
type questions struct {
	ctx   context.Context
	c     *client.Client
	began time.Time
	turns chan struct{}
	all   sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	answers []answer
	errs    []error
}

func newQuestions(ctx context.Context, c *client.Client, began time.Time) *questions {
	return &questions{ctx: ctx, c: c, began: began, turns: make(chan struct{}, atOnce)}
}

// first asks a ready child. It returns immediately.
func (q *questions) first(sb api.SandboxInfo) {
	if sb.Error != "" {
		return
	}
	q.all.Go(func() {
		q.turns <- struct{}{}
		r, err := eval(q.ctx, q.c, sb, first)
		at := time.Since(q.began)
		<-q.turns
		var a answer
		if err == nil {
			a, err = parse(r)
			a.at = at
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		if err != nil {
			q.errs = append(q.errs, err)
			return
		}
		q.answers = append(q.answers, a)
	})
}

// wait waits for the answers of all children.
func (q *questions) wait() ([]answer, error) {
	q.all.Wait()
	return q.answers, errors.Join(q.errs...)
}

// again checks that every child still sees its own value, after all siblings have set theirs.
func again(ctx context.Context, c *client.Client, children []api.SandboxInfo) error {
	return each(children, func(_ int, sb api.SandboxInfo) error {
		r, err := eval(ctx, c, sb, "mine")
		if err == nil && r != strconv.Itoa(sb.Index) {
			err = fmt.Errorf("child %d set mine = %d and finds %q", sb.Index, sb.Index, r)
		}
		return err
	})
}

func eval(ctx context.Context, c *client.Client, sb api.SandboxInfo, code string) (string, error) {
	r, err := c.Eval(ctx, sb.ID, api.EvalRequest{Code: code})
	switch {
	case err != nil:
		return "", fmt.Errorf("child %d: %w", sb.Index, err)
	case r.Error != nil && *r.Error != "":
		return "", fmt.Errorf("child %d: %s", sb.Index, *r.Error)
	case r.Result == nil:
		return "", fmt.Errorf("child %d gave no result", sb.Index)
	}
	return *r.Result, nil
}

func parse(result string) (answer, error) {
	f := strings.Fields(strings.Trim(result, "'"))
	if len(f) != 7 {
		return answer{}, fmt.Errorf("a child answered %q", result)
	}
	index, err := strconv.Atoi(f[6])
	return answer{numpy: f[0] == "True", matrix: f[1] == "True", tainted: f[2] == "True",
		random: [3]string{f[3], f[4], f[5]}, index: index}, err
}

// check compares the children with one another.
func (r *Result) check(answers []answer) {
	var seen [3]map[string]int
	for i := range seen {
		seen[i] = map[string]int{}
	}
	for _, a := range answers {
		if !a.numpy || !a.matrix {
			r.fail("child %d does not have the parent's heap", a.index)
		}
		if a.tainted {
			r.fail("child %d sees a variable that a sibling set", a.index)
		}
		for i, source := range []string{"numpy", "random", "urandom"} {
			if twin := seen[i][a.random[i]]; twin != 0 {
				r.fail("children %d and %d drew the same number from %s", twin, a.index, source)
			}
			seen[i][a.random[i]] = a.index
		}
	}
}

func (r *Result) times(answers []answer) {
	var at []float64
	for _, a := range answers {
		at = append(at, millis(a.at))
	}
	slices.Sort(at)
	if n := len(at); n > 0 {
		r.AnswerP50MS, r.AnswerP99MS = at[n/2], at[min(n-1, n*99/100)]
	}
}

// memory sets the mean memory use of some of the children.
func (r *Result) memory(ctx context.Context, c *client.Client, children []api.SandboxInfo) error {
	n := min(len(children), 10)
	for i := range n {
		use, err := c.Memory(ctx, children[i*len(children)/n].ID)
		if err != nil {
			return err
		}
		r.VMMAnonKiB += use.VMMAnonKiB / int64(n)
		r.GuestDirtyKiB += use.GuestDirtyKiB / int64(n)
	}
	return nil
}

func (r *Result) fail(format string, args ...any) {
	r.Failures = append(r.Failures, fmt.Sprintf(format, args...))
}

func (r *Result) failAll(err error) {
	if err != nil {
		r.Failures = append(r.Failures, strings.Split(err.Error(), "\n")...)
	}
}

// atOnce is the number of children that are asked, or ended, at the same time.
const atOnce = 16

// each calls do for every child, several at a time.
func each(children []api.SandboxInfo, do func(int, api.SandboxInfo) error) error {
	errs := make([]error, len(children))
	var wg sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for i, sb := range children {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			errs[i] = do(i, sb)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
