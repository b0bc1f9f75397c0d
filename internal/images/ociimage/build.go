package ociimage

import (
	"context"
	"fmt"

	"github.com/forkd/forkd/internal/images/image"
)

// Foreign returns the image as a root for image.BuildForeign. Name, memory, VCPUs and disk are left to the caller.
func (i *Image) Foreign() image.Foreign {
	c := i.Config
	f := image.Foreign{
		Env: c.Env,
		Container: image.Container{
			Reference: i.Source, Digest: i.Digest.String(), Entrypoint: c.Entrypoint, Cmd: c.Cmd,
			ExposedPorts: c.ExposedPorts, StopSignal: c.StopSignal,
		},
		Inputs: []any{i.DiffIDs(), c.User, c.Workdir},
		Fetch: func(ctx context.Context, report func(float64, string)) error {
			return i.Fetch(ctx, func(done, total int64) {
				report(float64(done)/float64(max(total, 1)), fmt.Sprintf("%.1f of %.1f MB", float64(done)/1e6, float64(total)/1e6))
			})
		},
		Write: i.write,
	}
	if h := c.Healthcheck; h != nil {
		f.Container.Healthcheck = &image.Healthcheck{Test: h.Test, Retries: h.Retries,
			IntervalSecs: h.Interval.Seconds(), TimeoutSecs: h.Timeout.Seconds(), StartPeriodSecs: h.StartPeriod.Seconds()}
	}
	return f
}

func (i *Image) write(ctx context.Context, path, uuid string, g image.Guest,
	report func(float64)) (image.Account, error) {
	// Merging reads all layers, and writing reads most of them again.
	r, err := i.Merge(ctx, func(done float64) { report(done / 2) })
	if err != nil {
		return image.Account{}, err
	}
	user, _, err := r.Account()
	if err != nil {
		return image.Account{}, err
	}
	a := image.Account{User: user, Workdir: i.Config.Workdir}
	if err := r.addGuest(g, a); err != nil {
		return a, err
	}
	return a, r.Write(ctx, path, uuid, func(done float64) { report(0.5 + done/2) })
}

// addGuest adds forkd's own files.
func (r *Root) addGuest(g image.Guest, a image.Account) error {
	files, err := g.Files(a)
	if err != nil {
		return err
	}
	for _, path := range g.Emptied {
		if r.Has(path) {
			files = append(files, image.GuestFile{Path: path, Mode: 0o444})
		}
	}
	for _, f := range files {
		if err := r.AddFile(File(f)); err != nil {
			return err
		}
	}
	for _, path := range append(g.Folders, a.Workdir) {
		if err := r.AddFolder(path); err != nil {
			return err
		}
	}
	return nil
}
