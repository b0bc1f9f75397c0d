package sandboxes

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/sys/durable"
)

// A sandbox paused without its memory keeps its boot files next to its record, because its image
// may be removed or rebuilt before the sandbox is resumed.

// Suffixes of the names of those files; the sandbox's id is the prefix.
const (
	kernelSuffix = ".kernel"
	initrdSuffix = ".initrd"
)

// BootFiles holds the files a sandbox boots from. They are never written.
type BootFiles struct {
	Kernel, Initrd *os.File // Initrd is nil if there is none
}

// Close closes the files.
func (b BootFiles) Close() {
	for _, f := range []*os.File{b.Kernel, b.Initrd} {
		if f != nil {
			f.Close()
		}
	}
}

func (d PausedDir) bootFile(id, suffix string) string { return filepath.Join(string(d), id+suffix) }

// keepBoot saves the files as hard links, or as copies if the file system has no links. The record
// is written after them and makes their names durable.
func (d PausedDir) keepBoot(ctx context.Context, id string, b BootFiles) error {
	d.dropBoot(id) // left by an interrupted pause
	for suffix, f := range map[string]*os.File{kernelSuffix: b.Kernel, initrdSuffix: b.Initrd} {
		if f == nil {
			continue
		}
		if err := adopt(ctx, f, d.bootFile(id, suffix)); err != nil {
			d.dropBoot(id)
			return err
		}
	}
	return nil
}

func adopt(ctx context.Context, from *os.File, to string) error {
	if durable.Link(from, to) == nil {
		return nil
	}
	f, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err = durable.CopyFile(ctx, f, from); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func (d PausedDir) dropBoot(id string) {
	os.Remove(d.bootFile(id, kernelSuffix))
	os.Remove(d.bootFile(id, initrdSuffix))
}

// bootFileOf returns the id of the sandbox that a boot file belongs to. It returns an empty string
// for any other name.
func bootFileOf(name string) string {
	for _, suffix := range []string{kernelSuffix, initrdSuffix} {
		if id, is := strings.CutSuffix(name, suffix); is && sandbox.ValidID(id) {
			return id
		}
	}
	return ""
}

// KeepBoot saves the sandbox's boot files until it is resumed or killed, or until DropBoot.
func (s *Sandbox) KeepBoot(ctx context.Context, b BootFiles) error {
	return s.table.cfg.Paused.keepBoot(ctx, s.id, b)
}

// DropBoot removes the boot files, unless the sandbox is paused.
func (s *Sandbox) DropBoot() {
	s.files.Lock()
	defer s.files.Unlock()
	if _, err := os.Lstat(s.table.cfg.Paused.file(s.id)); err != nil {
		s.table.cfg.Paused.dropBoot(s.id)
	}
}

// OpenBoot opens the files saved by KeepBoot.
func (s *Sandbox) OpenBoot() (b BootFiles, err error) {
	d := s.table.cfg.Paused
	if b.Kernel, err = durable.Open(d.bootFile(s.id, kernelSuffix)); err != nil {
		return b, err
	}
	b.Initrd, err = durable.Open(d.bootFile(s.id, initrdSuffix))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.Close()
		return BootFiles{}, err
	}
	return b, nil
}
