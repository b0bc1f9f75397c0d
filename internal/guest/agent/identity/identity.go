// Package identity gives a clone its own random state, clock, names and network, and runs its
// hooks. It defines the order of the steps and records the result of each. The only state is the
// caller's record. The agent calls it once per fork, before the sandbox counts as running.
//
// Entropy comes first, because later steps and hooks draw random numbers. Every page written here
// is paid for once per clone.
package identity

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/forkd/forkd/internal/guest/agent/defaults"
	"github.com/forkd/forkd/internal/guest/agent/interp"
	"github.com/forkd/forkd/internal/guest/agent/volumes"
	"github.com/forkd/forkd/internal/leaf/environ"
)

// MinEntropy is the least number of bytes of entropy in a request.
const MinEntropy = 32

// maxEntropy limits the bytes fed to the kernel in one call.
const maxEntropy = 4096

// proofPrefix separates the proof's digest from other uses of SHA-256.
const proofPrefix = "forkd identity proof v1"

// Request is the new identity of the clone.
type Request struct {
	Clone       defaults.Clone    // for the record, the environment and the interpreters
	Hostname    string            // if empty, the hostname is unchanged
	MachineID   string            // 32 lower-case hex digits; if empty, unchanged
	Entropy     []byte            // MinEntropy to maxEntropy bytes; each use gets its own key from it
	Wall        time.Time         // if zero, the clock is unchanged
	Env         map[string]string // added to the FORKD_ variables; these values win
	Network     Network           // the zero value changes no settings
	Token       string            // access token for later requests; if empty, they need none
	HookTimeout time.Duration     // limit of each hook; if not positive, 20 s
	Volumes     []volumes.Volume  // mounted before the hooks run
	// SameMachine keeps boot id, SSH host keys and memory marked with MADV_WIPEONFORK. It is set for a resume.
	SameMachine bool
}

// Step is the result of one step.
type Step struct {
	Name string        // such as "entropy", "clock" or "hooks"
	Done bool          // false if no work was needed
	Err  error         // nil on success; a failed step does not stop the next
	Took time.Duration // duration of the step
}

// Report contains the results of all steps.
type Report struct {
	Steps        []Step            // in order of execution
	ClockStep    time.Duration     // change of the wall clock; negative if it was ahead
	Reseeded     bool              // the kernel took the entropy
	Hooks        []HookResult      // in lexical order of their names
	Interpreters []interp.Reseeded // empty without a live or busy interpreter
	Digest       [sha256.Size]byte // of fresh random bytes; differs between clones
	BootID       string            // the clone's boot id, new or kept
	Took         time.Duration     // duration of all steps
}

// Applier applies identities. In production System and Root are the guest's; tests use their own.
type Applier struct {
	System System                                        // the kernel that gets the settings
	Link   Link                                          // nil if the guest has no network device
	Root   string                                        // normally /
	Hooks  string                                        // directory of hooks, absolute
	Record *defaults.Record                              // shared with the agent's other services; gets the new identity
	Interp *interp.Set                                   // the interpreters to reseed
	Run    Runner                                        // runs the hooks
	Mount  func(context.Context, []volumes.Volume) error // nil if the guest cannot mount volumes
	// Renews returns the program that makes a running init use the new identity, or an empty text. It may be nil.
	Renews func() string
	// Became is called once the record names the clone. It may be nil.
	Became func()
}

// Apply does all steps, even if one fails: a partial identity with a list of missing steps is
// better than one that stops somewhere. It returns an error only for a request that must not be
// applied at all.
func (a *Applier) Apply(ctx context.Context, req Request) (Report, error) {
	if err := req.check(); err != nil {
		return Report{}, err
	}
	began := time.Now()
	var rep Report
	for _, s := range a.steps(ctx, req, &rep) {
		at := time.Now()
		done, err := s.do()
		rep.Steps = append(rep.Steps, Step{s.name, done, err, time.Since(at)})
	}
	rep.Digest = proof()
	rep.Took = time.Since(began)
	return rep, nil
}

type step struct {
	name string
	do   func() (done bool, err error)
}

// steps returns the steps in their required order: see the package comment.
func (a *Applier) steps(ctx context.Context, req Request, rep *Report) []step {
	return []step{
		{"entropy", func() (bool, error) {
			err := a.System.AddEntropy(subkey(req.Entropy, "kernel"))
			rep.Reseeded = err == nil
			return err == nil, err
		}},
		// Programs that notice the fork by this draw from the kernel, which has its entropy now.
		{"wipe-on-fork", func() (bool, error) {
			if req.SameMachine {
				return false, nil
			}
			pages, err := a.System.WipeOnFork(ctx)
			return pages > 0, err
		}},
		{"clock", func() (done bool, err error) {
			rep.ClockStep, done, err = a.setClock(req.Wall)
			return done, err
		}},
		{"hostname", func() (bool, error) { return a.setHostname(req.Hostname) }},
		{"machine-id", func() (bool, error) { return a.setMachineID(req.MachineID) }},
		{"boot-id", func() (done bool, err error) {
			rep.BootID, done, err = a.setBootID(req.SameMachine)
			return done, err
		}},
		{"ssh-host-keys", func() (bool, error) {
			if req.SameMachine {
				return false, nil
			}
			return a.renewHostKeys(req.Hostname)
		}},
		{"network", func() (bool, error) { return a.setNetwork(req.Network) }},
		{"volumes", func() (bool, error) {
			if len(req.Volumes) == 0 {
				return false, nil
			}
			if a.Mount == nil {
				return false, errors.New("this guest mounts no volumes")
			}
			err := a.Mount(ctx, req.Volumes)
			return err == nil, err
		}},
		{"record", func() (bool, error) {
			a.Record.Become(req.Clone, a.env(req), req.Token)
			if a.Became != nil {
				a.Became()
			}
			return true, nil
		}},
		{"interpreters", func() (bool, error) {
			rep.Interpreters = a.Interp.Reseed(ctx, a.seed(req))
			return len(rep.Interpreters) > 0, firstInterpError(rep.Interpreters)
		}},
		{"init", func() (bool, error) { return a.renewInit(ctx, req) }},
		{"hooks", func() (done bool, err error) {
			rep.Hooks, err = a.runHooks(ctx, req)
			return len(rep.Hooks) > 0, err
		}},
	}
}

// env returns the environment of this clone's processes. The request's values win.
func (a *Applier) env(req Request) map[string]string {
	env := map[string]string{}
	if req.Clone.SandboxID != "" {
		env["FORKD_SANDBOX_ID"] = req.Clone.SandboxID
		env["FORKD_INDEX"] = fmt.Sprint(req.Clone.Index)
		env["FORKD_PARENT"] = req.Clone.Parent
	}
	for k, v := range req.Env {
		env[k] = v
	}
	return env
}

func (a *Applier) seed(req Request) interp.Seed {
	return interp.Seed{
		Entropy: subkey(req.Entropy, "interpreters"),
		Env:     a.env(req),
		Info: map[string]any{
			"sandbox_id": req.Clone.SandboxID,
			"index":      req.Clone.Index,
			"parent":     req.Clone.Parent,
		},
	}
}

func firstInterpError(all []interp.Reseeded) error {
	for _, r := range all {
		if r.Err != nil {
			return fmt.Errorf("%s: %w", r.Language, r.Err)
		}
	}
	return nil
}

func (r Request) check() error {
	if n := len(r.Entropy); n < MinEntropy || n > maxEntropy {
		return fmt.Errorf("entropy is %d bytes, want %d to %d", n, MinEntropy, maxEntropy)
	}
	if r.Hostname != "" && !validHostname(r.Hostname) {
		return fmt.Errorf("hostname %q is not valid", r.Hostname)
	}
	if r.MachineID != "" && !validMachineID(r.MachineID) {
		return errors.New("machine id is not 32 lower-case hex digits")
	}
	if n := len(r.Network.MAC); n != 0 && (n != 6 || r.Network.MAC[0]&1 != 0) {
		return fmt.Errorf("hardware address %s is none of one station", r.Network.MAC)
	}
	return environ.Check(r.Env)
}

// subkey derives separate keys from one piece of entropy: the interpreter's seed reveals no
// information about the kernel's.
func subkey(entropy []byte, use string) []byte {
	h := sha256.New()
	fmt.Fprintf(h, "forkd identity %s\n", use)
	h.Write(entropy)
	return h.Sum(nil)
}

// proof returns a digest that differs between clones and does not reveal their random numbers.
func proof() [sha256.Size]byte {
	var fresh [32]byte
	_, _ = rand.Read(fresh[:]) // never fails: it calls getrandom
	return sha256.Sum256(append([]byte(proofPrefix), fresh[:]...))
}

func (a *Applier) path(p string) string { return filepath.Join(a.Root, p) }
