package enginetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/labels"
	"github.com/forkd/forkd/internal/store/receipt"
)

// Engine is the engine as the suite uses it.
type Engine interface {
	CreateSnapshot(ctx context.Context, req sandbox.CreateRequest,
		progress func(sandbox.Step)) (sandbox.SnapshotInfo, error)
	DeriveSnapshot(ctx context.Context, req sandbox.DeriveRequest,
		progress func(sandbox.Step)) (sandbox.SnapshotInfo, error)
	CompactSnapshot(ctx context.Context, tag, to string, progress func(sandbox.Step)) (sandbox.SnapshotInfo, error)
	ListSnapshots(ctx context.Context) ([]sandbox.SnapshotInfo, error)
	SnapshotInfo(ctx context.Context, tag string) (sandbox.SnapshotInfo, error)
	DeleteSnapshot(ctx context.Context, tag string, opt sandbox.DeleteOptions) error
	VerifySnapshot(ctx context.Context, tag string) (sandbox.VerifyReport, error)
	DiffSnapshots(ctx context.Context, req sandbox.DiffRequest) (sandbox.SnapshotDiff, error)
	Fork(ctx context.Context, req sandbox.ForkRequest) (sandbox.ForkResult, error)
	List() []sandbox.Info
	Get(id string) (sandbox.Info, error)
	Kill(ctx context.Context, id string) error
	Memory(id string) (sandbox.MemoryUse, error)
	sandbox.PortDialer
	Branch(ctx context.Context, req sandbox.BranchRequest) (sandbox.BranchResult, error)
	Rollback(ctx context.Context, id, tag string) (sandbox.Info, error)
	Promote(ctx context.Context, req sandbox.PromoteRequest) (sandbox.Promotion, error)
	Pause(ctx context.Context, id string, opt sandbox.PauseOptions) (sandbox.Info, error)
	Resume(ctx context.Context, id string) (sandbox.Info, error)
	Receipt(kind receipt.Kind, of string) (receipt.Receipt, error)
	Ping(ctx context.Context, id string) (sandbox.Pong, error)
	Exec(ctx context.Context, id string, req sandbox.ExecRequest) (sandbox.ExecResult, error)
	Eval(ctx context.Context, id string, req sandbox.EvalRequest) (sandbox.EvalResult, error)
	Network(id string) (sandbox.Network, error)
	SetNetwork(ctx context.Context, id string, req sandbox.NetworkRequest) (sandbox.Network, error)
	SetPool(ctx context.Context, tag string, size int) error
	Pools() []sandbox.PoolStatus
	LabelSandbox(ctx context.Context, id string, change labels.Change) (sandbox.Info, error)
	LabelSnapshot(ctx context.Context, tag string, change labels.Change) (sandbox.SnapshotInfo, error)
	RenameSnapshot(ctx context.Context, tag, to string) (sandbox.SnapshotInfo, error)
}

// Subject is an engine under test. It has no snapshots and no sandboxes yet.
type Subject struct {
	Engine Engine // Run leaves the snapshot "base" in it
	Image  string // name of a bootable image with a writable disk
	// End makes a sandbox's VM end by itself.
	End func(id string)
	// Finish finishes writing a NoWait branch. If nil, the branch finishes by itself.
	Finish func(tag string)
}

// suite is one run. Every test leaves the snapshot "base" and no sandbox.
type suite struct {
	Subject
	t *testing.T
}

// base is the tag of the snapshot that exists in every test.
const base = "base"

// Run checks an engine against the behavior expected by its callers.
func Run(t *testing.T, subject Subject) {
	s := suite{subject, t}
	s.create(base)
	for name, test := range map[string]func(suite){
		"a creation":                   creation,
		"what is no snapshot":          noSnapshot,
		"a fork":                       fork,
		"a fork that cannot be":        noFork,
		"what is no sandbox":           noSandbox,
		"a VM that ends by itself":     ended,
		"programs":                     programs,
		"a branch":                     branch,
		"a branch with children":       branchWithChildren,
		"a branch nobody waits for":    branchWithoutWaiting,
		"a branch that cannot be":      noBranch,
		"a rollback":                   rollback,
		"a rollback that cannot be":    noRollback,
		"a promotion":                  promotes,
		"a promotion that cannot be":   noPromotion,
		"pauses":                       pauses,
		"a pause that cannot be":       noPause,
		"labels":                       labelled,
		"changes of labels":            relabelled,
		"labels that cannot be":        noLabels,
		"a renaming":                   renaming,
		"a renaming that cannot be":    noRenaming,
		"a network":                    networks,
		"a network that cannot be":     badRules,
		"buckets and a proxy":          grants,
		"private ports":                privatePorts,
		"a deletion with dependents":   deletionWithDependents,
		"a deletion of what is in use": deletionInUse,
		"a compaction":                 compaction,
		"a derivation that cannot be":  noDerivation,
		"a verification":               verification,
		"pools":                        pools,
		"contexts that end":            contexts,
		"answers are copies":           copies,
	} {
		t.Run(name, func(t *testing.T) {
			s := suite{subject, t}
			test(s)
			s.clean()
		})
	}
}

// clean ends every sandbox and deletes every snapshot but base.
func (s suite) clean() {
	s.t.Helper()
	for _, b := range s.Engine.List() {
		s.must(s.Engine.Kill(s.t.Context(), b.ID))
	}
	for _, tag := range s.tags() {
		if tag == base {
			continue
		}
		if err := s.Engine.DeleteSnapshot(s.t.Context(), tag, sandbox.DeleteOptions{Force: true}); err != nil {
			s.t.Errorf("delete what the test has left: %v", err)
		}
	}
	if info := s.info(base); len(info.Sandboxes)+len(info.Dependents) > 0 {
		s.t.Errorf("base has sandboxes %q and dependents %q when all are gone", info.Sandboxes, info.Dependents)
	}
}

func (s suite) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// want checks an error's kind.
func (s suite) want(kind, err error, what string) {
	s.t.Helper()
	if !errors.Is(err, kind) {
		s.t.Errorf("%s: got error %v, want one of kind %q", what, err, kind)
	}
}

func (s suite) eventually(what string, is func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("no %s after a minute", what)
		}
	}
}

func (s suite) create(tag string) sandbox.SnapshotInfo {
	s.t.Helper()
	info, err := s.Engine.CreateSnapshot(s.t.Context(), sandbox.CreateRequest{Tag: tag, Image: s.Image}, nil)
	s.must(err)
	return info
}

// fork makes n children. All of them must succeed.
func (s suite) fork(tag string, n int) []sandbox.Info {
	s.t.Helper()
	r, err := s.Engine.Fork(s.t.Context(), sandbox.ForkRequest{Tag: tag, N: n})
	s.must(err)
	if len(r.Children) != n {
		s.t.Fatalf("%d children of %d", len(r.Children), n)
	}
	out := make([]sandbox.Info, 0, n)
	for i, c := range r.Children {
		s.must(c.Err)
		if c.Index != i+1 || c.Info.Index != i+1 || c.Info.Fork != r.Children[0].Info.ID {
			s.t.Errorf("child %d has index %d and %d, and is of fork %q", i+1, c.Index, c.Info.Index, c.Info.Fork)
		}
		out = append(out, c.Info)
	}
	return out
}

func (s suite) branch(req sandbox.BranchRequest) sandbox.BranchResult {
	s.t.Helper()
	r, err := s.Engine.Branch(s.t.Context(), req)
	s.must(err)
	return r
}

func (s suite) info(tag string) sandbox.SnapshotInfo {
	s.t.Helper()
	info, err := s.Engine.SnapshotInfo(s.t.Context(), tag)
	s.must(err)
	return info
}

// tags returns the tags of all snapshots, in list order.
func (s suite) tags() []string {
	s.t.Helper()
	all, err := s.Engine.ListSnapshots(s.t.Context())
	s.must(err)
	var tags []string
	for _, info := range all {
		tags = append(tags, info.Tag)
	}
	return tags
}

func (s suite) wantTags(want ...string) {
	s.t.Helper()
	if got := s.tags(); !slices.Equal(got, want) {
		s.t.Errorf("listed are %q, want %q", got, want)
	}
}
