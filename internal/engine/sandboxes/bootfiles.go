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

// A sandbox that is paused without its memory keeps what it boots from beside its record: its image
// may be removed, or built anew, before it is resumed.

// Suffixes of the names of those files; the sandbox's id comes before.
const (
	kernelSuffix = ".kernel"
	initrdSuffix = ".initrd"
)

// BootFiles are what a sandbox boots from. They are never written.
type BootFiles struct {
	Kernel, Initrd *os.File // Initrd is nil if there is none
}

// Close closes them.
func (b BootFiles) Close() {
	for _, f := range []*os.File{b.Kernel, b.Initrd} {
		if f != nil {
			f.Close()
		}
	}
}

func (d PausedDir) bootFile(id, suffix string) string { return filepath.Join(string(d), id+suffix) }

// keepBoot takes the files, by other names for them where the file system can and else by copies. Their
// names are durable with the record, which is written after them.
func (d PausedDir) keepBoot(ctx context.Context, id string, b BootFiles) error {
	d.dropBoot(id) // of a pause that was cut short
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

// bootFileOf is whose boot file a name is of; empty: of nobody's.
func bootFileOf(name string) string {
	for _, suffix := range []string{kernelSuffix, initrdSuffix} {
		if id, is := strings.CutSuffix(name, suffix); is && sandbox.ValidID(id) {
			return id
		}
	}
	return ""
}

// KeepBoot keeps the files that the sandbox is going to boot from, until it is resumed or killed, or DropBoot.
func (s *Sandbox) KeepBoot(ctx context.Context, b BootFiles) error {
	return s.table.cfg.Paused.keepBoot(ctx, s.id, b)
}

// DropBoot removes them, if the sandbox is not paused after all.
func (s *Sandbox) DropBoot() {
	s.files.Lock()
	defer s.files.Unlock()
	if _, err := os.Lstat(s.table.cfg.Paused.file(s.id)); err != nil {
		s.table.cfg.Paused.dropBoot(s.id)
	}
}

// OpenBoot opens what KeepBoot has kept.
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
