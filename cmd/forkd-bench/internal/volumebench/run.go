// Package volumebench is the benchmark of volumes: forks with one, beside forks without, in turn; the time of a
// clone; and a volume's throughput beside the root disk's in the same sandbox. It owns the order and the ratios,
// and ends all that it made. The trap: a snapshot with an idle pool of shells answers faster without a volume, so
// the pool must be off or full for both.
package volumebench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/diskratio"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure"
	"github.com/forkd/forkd/internal/sys/diskbench"
)

// Config holds the parameters of the measurement.
type Config struct {
	Client    *client.Client
	Tag       string // the snapshot to fork from
	Rounds    int    // forks of each kind, and clones
	CloneGiB  int64  // size of the volume that is cloned
	FillMiB   int    // bytes of random data in it, in MiB
	MiB       int    // size of the file for the throughput, in MiB; 0: do not measure it
	RandomOps int    // accesses at random places
	// Say receives progress messages. May be nil.
	Say func(string)
}

// Figures holds the result (docs/inside/formats/json-output.md): medians over the rounds.
type Figures struct {
	Rounds    int     `json:"rounds"`
	PlainMS   float64 `json:"plain_ready_ms"`  // a fork without a volume, to the confirmed identity
	VolumeMS  float64 `json:"volume_ready_ms"` // a fork with a clone of a volume
	PlainArm  float64 `json:"plain_armed_ms"`  // the first, to the gate
	VolumeArm float64 `json:"volume_armed_ms"` // the second, to the gate
	ForkRatio float64 `json:"fork_ratio"`      // of the two ready times

	CloneGiB int64   `json:"clone_gib"` // size of the cloned volume
	FillMiB  int     `json:"fill_mib"`  // the data in it
	CloneMS  float64 `json:"clone_ms"`  // of the request that clones it

	Volume *diskbench.Figures `json:"volume,omitempty"` // rates in a volume; absent if they were not measured
	Root   *diskbench.Figures `json:"root,omitempty"`   // rates on the root disk of the same sandbox
	Ratio  *diskratio.Ratio   `json:"ratio,omitempty"`  // the volume's rates divided by the root disk's

	Where string `json:"where"`
	CPUs  int    `json:"cpus,omitempty"`
}

const (
	path   = "/mnt/forkd-bench"
	prefix = "forkd-bench-" // of the volumes' names
)

type run struct {
	Config
	f    Figures
	made []string
}

// Run measures. It removes its volumes and ends its children.
func Run(ctx context.Context, c Config) (f Figures, err error) {
	if c.Say == nil {
		c.Say = func(string) {}
	}
	r := &run{Config: c, f: Figures{Rounds: c.Rounds, CloneGiB: c.CloneGiB, FillMiB: c.FillMiB}}
	defer func() { err = errors.Join(err, r.remove(ctx)) }()
	for _, step := range []func(context.Context) error{r.prepare, r.forks, r.clones, r.rates} {
		if err := step(ctx); err != nil {
			return r.f, err
		}
	}
	return r.f, nil
}

func (r *run) create(ctx context.Context, name, from string, mib int64) error {
	// The answer of an interrupted request is lost, so the name is noted before.
	r.made = append(r.made, name)
	_, err := r.Client.Volumes().Create(ctx, api.CreateVolumeRequest{Name: name, SizeMiB: mib, From: from})
	return err
}

func (r *run) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	var errs []error
	for _, name := range r.made {
		var of *client.Error
		err := r.Client.Volumes().Remove(ctx, name)
		if err != nil && (!errors.As(err, &of) || of.Code != api.CodeNotFound) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// prepare makes the volume and fills it.
func (r *run) prepare(ctx context.Context) error {
	r.Say(fmt.Sprintf("a volume of %d GiB with %d MiB of data", r.CloneGiB, r.FillMiB))
	if err := r.create(ctx, prefix+"source", "", r.CloneGiB<<10); err != nil {
		return err
	}
	_, err := r.with(ctx, api.VolumePrivate, func(id string) error {
		if r.FillMiB == 0 {
			return nil
		}
		return r.sh(ctx, id, fmt.Sprintf("head -c %d /dev/urandom > %s/fill && sync", r.FillMiB<<20, path))
	})
	return err
}

// with runs do in a child that has the volume.
func (r *run) with(ctx context.Context, mode api.VolumeMode, do func(id string) error) (api.SandboxInfo, error) {
	n := 1
	return r.one(ctx, api.CreateSandboxesRequest{SnapshotTag: r.Tag, N: &n,
		Volumes: []api.VolumeMount{{Name: prefix + "source", Path: path, Mode: mode}}}, do)
}

func (r *run) one(ctx context.Context, req api.CreateSandboxesRequest,
	do func(id string) error) (api.SandboxInfo, error) {
	res, err := measure.ForkAs(ctx, r.Client, req)
	if err != nil {
		return api.SandboxInfo{}, err
	}
	sb := res.OK()[0]
	if do != nil {
		err = do(sb.ID)
	}
	return sb, errors.Join(err, measure.Kill(ctx, r.Client, res.OK()))
}

func (r *run) sh(ctx context.Context, id, script string) error {
	res, err := r.Client.Exec(ctx, id, api.ExecRequest{Args: []string{"sh", "-c", script}, User: "root", TimeoutSecs: 600})
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("in the guest: exit code %d: %.300s", res.ExitCode, res.Stderr)
	}
	return err
}

// forks takes turns, so that a slower minute of the host slows both.
func (r *run) forks(ctx context.Context) error {
	n := 1
	var plain, volume, plainArm, volumeArm []float64
	for i := range r.Rounds + 1 {
		r.Say(fmt.Sprintf("forks, round %d of %d", i, r.Rounds))
		p, err := r.one(ctx, api.CreateSandboxesRequest{SnapshotTag: r.Tag, N: &n}, nil)
		if err != nil {
			return err
		}
		v, err := r.with(ctx, api.VolumeClone, nil)
		if err != nil {
			return err
		}
		if i == 0 { // the first of each reads files that are not cached
			continue
		}
		plain, volume = append(plain, p.Timings.ReadyMS), append(volume, v.Timings.ReadyMS)
		plainArm, volumeArm = append(plainArm, p.Timings.ArmedMS), append(volumeArm, v.Timings.ArmedMS)
	}
	r.f.PlainMS, r.f.VolumeMS = measure.Median(plain), measure.Median(volume)
	r.f.PlainArm, r.f.VolumeArm = measure.Median(plainArm), measure.Median(volumeArm)
	if r.f.PlainMS > 0 {
		r.f.ForkRatio = r.f.VolumeMS / r.f.PlainMS
	}
	return nil
}

func (r *run) clones(ctx context.Context) error {
	var took []float64
	for i := range r.Rounds {
		start := time.Now()
		if err := r.create(ctx, fmt.Sprintf("%sclone-%d", prefix, i), prefix+"source", 0); err != nil {
			return err
		}
		took = append(took, float64(time.Since(start).Microseconds())/1000)
	}
	r.f.CloneMS = measure.Median(took)
	return nil
}

// rates measures both disks of one child.
func (r *run) rates(ctx context.Context) error {
	if r.MiB == 0 {
		return nil
	}
	var volume, root []diskbench.Figures
	_, err := r.with(ctx, api.VolumeClone, func(id string) error {
		for i := range min(r.Rounds, 3) {
			r.Say(fmt.Sprintf("throughput, round %d of %d", i+1, min(r.Rounds, 3)))
			for _, side := range []struct {
				dir string
				all *[]diskbench.Figures
			}{{path, &volume}, {"/var/tmp", &root}} {
				f, err := diskratio.InGuest(ctx, r.Client, id, diskbench.Config{Dir: side.dir, MiB: r.MiB, RandomOps: r.RandomOps})
				if err != nil {
					return err
				}
				*side.all = append(*side.all, f)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	v, d := diskratio.Median(volume), diskratio.Median(root)
	ratio := diskratio.Of(v, d)
	r.f.Volume, r.f.Root, r.f.Ratio = &v, &d, &ratio
	return nil
}
