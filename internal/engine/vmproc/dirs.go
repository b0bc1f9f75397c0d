package vmproc

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/forkd/forkd/internal/vm/vmctl/client"
)

// VMsName is the directory in RunDir with a folder for each VM.
const VMsName = "vm"

var (
	vmDirName   = regexp.MustCompile(`^v[0-9]{8,10}$`)
	overlayName = regexp.MustCompile(`^v[0-9]{8,10}-disk[0-9]{1,3}(-[0-9]+)?$`)
)

func (s *Supervisor) dir() string { return filepath.Join(s.cfg.RunDir, VMsName) }

// vmFiles lists all possible files in a VM's run directory.
var vmFiles = []string{Journal, SandboxJournal, vmmLog, client.ControlSocket, client.VsockSocket, client.ConsoleLog}

func isVMFile(name string) bool { return slices.Contains(vmFiles, strings.TrimSuffix(name, ".tmp")) }

// names returns the names of the VMs' readable run directories.
func (s *Supervisor) names() (ours []string, err error) {
	names, err := s.cfg.VMs.Names()
	if err != nil {
		return nil, fmt.Errorf("list VMs: %w", err)
	}
	for _, name := range names {
		err := errors.New("it is not named as a VM's directory")
		if vmDirName.MatchString(name) {
			err = s.cfg.VMs.Check(name, isVMFile)
		}
		if err != nil {
			s.noteVM(name)
			s.cfg.Log.Warn("left alone: not a directory of a VM", "path", filepath.Join(s.dir(), name), "err", err)
			continue
		}
		ours = append(ours, name)
	}
	return ours, nil
}

// removeDir removes a VM's run directory.
func (s *Supervisor) removeDir(dir string) {
	left, err := s.cfg.VMs.Remove(filepath.Base(dir), isVMFile)
	if err != nil || len(left) > 0 {
		s.cfg.Log.Warn("remove a directory: something is left in it", "path", dir, "left", left, "err", err)
	}
}

// ValidDisks returns false if a record names files that cannot belong to a sandbox.
func (s *Supervisor) ValidDisks(disks []Disk) bool {
	for _, path := range NewDisks(disks).Paths() {
		if filepath.Dir(path) != s.cfg.Overlays || !overlayName.MatchString(filepath.Base(path)) {
			s.cfg.Log.Warn("a journal names a disk that is no sandbox's", "path", path)
			return false
		}
	}
	return true
}
