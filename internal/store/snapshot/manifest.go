package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/leaf/ellipsis"
	"github.com/forkd/forkd/internal/leaf/secretid"
	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/store/layer"
)

// Format is the version of the manifest. The package reads no other version.
const Format = 2

// Limits for decoding; see docs/inside/formats/snapshot.md.
const (
	MaxManifestBytes = 4 << 20
	// MaxChain limits the layers of an image. Each layer is an open file in every child's VMM, and a message to
	// the VMM carries a limited number.
	MaxChain = 64
	// MaxAncestors limits the ancestors listed in a manifest.
	MaxAncestors = 256
	// MaxNetworkFacts limits the resolved names in a manifest.
	MaxNetworkFacts = 128
	maxFiles        = 64
	maxStateBytes   = 64 << 20
	maxFeatures     = 1024 // of a CPU
	maxCPUText      = 64   // bytes of a feature's or vendor's name
	// Limits of the agent's information about itself.
	maxCapabilities = 64
	maxAgentText    = 64 // bytes of its version, and of a capability's name
	maxVolumeText   = 512
)

// Names of the files that every snapshot has.
const (
	ManifestFile = "manifest.json"
	StateFile    = "vmstate"
	DigestFile   = "digests"
)

// WorkingSetFile is the name of the file with the pages that every child touches (package workingset). It is
// optional.
const WorkingSetFile = "working-set"

// EvalSetFile is the same for a child that has evaluated code in a warmed interpreter: the pages of
// WorkingSetFile and more. It is optional.
const EvalSetFile = "working-set-eval"

// ExecSetFile is the same for a child that has run its first program. It is optional.
const ExecSetFile = "working-set-exec"

// VolumeSetFile is the same for a child that has mounted a volume on its way to ready. It is optional.
const VolumeSetFile = "working-set-volume"

// WorkingSets are the names of all files with working sets. Each lists the pages of WorkingSetFile, and more.
var WorkingSets = []string{WorkingSetFile, EvalSetFile, ExecSetFile, VolumeSetFile}

// IsWorkingSet reports whether a file with this name holds a working set.
func IsWorkingSet(name string) bool { return slices.Contains(WorkingSets, name) }

// DiskFile returns the file name of disk i, for a read-only disk without layers.
func DiskFile(i int) string { return fmt.Sprintf("disk%d", i) }

// Manifest describes one snapshot. Paths in it are plain names of files in the same directory, and layers are
// named by ID. So a store may be moved or copied as a whole.
type Manifest struct {
	Format        int    `json:"format"`
	Tag           string `json:"tag"`
	Owner         string `json:"owner,omitempty"` // tenant; empty for the operator
	CreatedUnixMS int64  `json:"created_unix_ms"`
	Image         *Image `json:"image,omitempty"` // nil if booted from a kernel and root file system without an image

	Shape   vmspec.Shape `json:"shape"`
	Cmdline string       `json:"cmdline"`
	Files   []File       `json:"files"` // all files except the manifest and the digests
	Memory  Chain        `json:"memory"`
	State   State        `json:"state"`
	Disks   []Disk       `json:"disks,omitempty"`

	// CPU and CPUFeatures describe the guest's view of the CPU, for people. The table checked by a restore is
	// part of the VM's state. Snapshots written before these fields existed lack them.
	CPU         *CPU     `json:"cpu,omitempty"`
	CPUFeatures []string `json:"cpu_features,omitempty"`
	Languages   []string `json:"languages,omitempty"`
	Agent       Agent    `json:"agent"`
	// Network is the policy of sandboxes forked from it without one. If nil, they may reach no network. It
	// contains no secrets.
	Network *netpolicy.Spec `json:"network,omitempty"`
	// PublicPorts opens the ports of sandboxes forked from it, unless the fork says otherwise. Otherwise the
	// ports require a token; the manifest does not contain it. A branch has the setting of its sandbox.
	PublicPorts bool `json:"public_ports,omitempty"`
	// NetworkFacts are the names that its guest had resolved, with their addresses, at most MaxNetworkFacts. They
	// are in the guest's memory, and rules by name must keep working for them.
	NetworkFacts []netpolicy.Exported `json:"network_facts,omitempty"`
	// Secrets are those whose values its memory or disks may contain (docs/use/secrets.md).
	Secrets []secretid.Secret `json:"secrets,omitempty"`
	Parent  *Parent           `json:"parent,omitempty"` // nil if it depends on no other snapshot
	// Ancestors is the ancestry of Parent, root first. It is complete even if a snapshot in between is deleted.
	// It has at most MaxAncestors entries, the nearest ones.
	Ancestors []Parent `json:"ancestors,omitempty"`
	Branch    *Branch  `json:"branch,omitempty"` // nil if it was made from an image
	Steps     []Step   `json:"steps,omitempty"`
}

// Image is the image from which the parent was booted.
type Image struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
	Kernel string `json:"kernel,omitempty"` // version
}

// CPU identifies a processor model.
type CPU struct {
	Vendor   string `json:"vendor"` // in CPUID's spelling: GenuineIntel, AuthenticAMD
	Family   int    `json:"family"`
	Model    int    `json:"model"`
	Stepping int    `json:"stepping"`
}

// File is one file of the snapshot.
type File struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// Chain is an image as a chain of layers in the layer store.
type Chain struct {
	Layers []layer.ID `json:"layers,omitempty"` // base first
	// Own is the number of layers, from the top, that the parent snapshot does not have.
	Own int `json:"own,omitempty"`
}

// OwnSince returns the number of layers, from the top, that the chain below does not have.
func (c Chain) OwnSince(below Chain) int {
	same := 0
	for same < min(len(c.Layers), len(below.Layers)) && c.Layers[same] == below.Layers[same] {
		same++
	}
	return len(c.Layers) - same
}

// State is the file of the VM's state: CPUs, interrupt controllers, devices.
type State struct {
	File   string `json:"file"`
	SHA256 string `json:"sha256"`
}

// Disk is a block device: either a read-only file, or layers below each child's writes.
type Disk struct {
	File     string `json:"file,omitempty"`
	ReadOnly bool   `json:"read_only"`
	Bytes    int64  `json:"bytes,omitempty"` // of a disk with layers: whole sectors of 512
	Chain
	// Volume is set for a disk that was a volume of the branched sandbox. Such disks follow the others.
	Volume *Volume `json:"volume,omitempty"`
}

// Volume is the use of a volume by a snapshot's guest.
type Volume struct {
	ID       string `json:"id"` // of the volume in the store that made the snapshot
	Name     string `json:"name"`
	Path     string `json:"path"` // mount point
	ReadOnly bool   `json:"read_only,omitempty"`
}

// LayerBytes returns the size of the disk's layers: the disk's size, rounded up to whole blocks.
func (d Disk) LayerBytes() int64 {
	return (d.Bytes + layer.BlockSize - 1) / layer.BlockSize * layer.BlockSize
}

// Chains returns the snapshot's images: its memory, then its disks with layers.
func (m *Manifest) Chains() []Chain {
	all := []Chain{m.Memory}
	for _, d := range m.Disks {
		if len(d.Layers) > 0 {
			all = append(all, d.Chain)
		}
	}
	return all
}

// Volumes returns the disks that were volumes of the branched sandbox.
func (m *Manifest) Volumes() []Disk { return m.Disks[min(m.Shape.Disks, len(m.Disks)):] }

// LayerIDs returns the snapshot's layers, each once.
func (m *Manifest) LayerIDs() []layer.ID {
	var ids []layer.ID
	for _, c := range m.Chains() {
		for _, id := range c.Layers {
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// Agent is the guest agent's information about itself before the snapshot.
type Agent struct {
	Version string `json:"version,omitempty"`
	// Capabilities are the agent's optional features, by names of package agentproto. Only these are used in the
	// snapshot's children. Snapshots written before this field existed lack it.
	Capabilities []string `json:"capabilities,omitempty"`
}

// Can reports whether the agent has the capability.
func (a Agent) Can(capability string) bool { return slices.Contains(a.Capabilities, capability) }

// Bounded returns the information with limited size. The agent is not trusted, so invalid names are dropped.
func (a Agent) Bounded() Agent {
	a.Version = ellipsis.Clip(a.Version, maxAgentText)
	a.Capabilities = slices.DeleteFunc(slices.Clone(a.Capabilities), func(c string) bool { return !capability(c) })
	a.Capabilities = a.Capabilities[:min(len(a.Capabilities), maxCapabilities)]
	return a
}

func capability(name string) bool { return len(name) <= maxAgentText && namePattern.MatchString(name) }

func (a Agent) validate() error {
	if n := len(a.Capabilities); n > maxCapabilities {
		return fmt.Errorf("%d capabilities, want at most %d", n, maxCapabilities)
	}
	for _, c := range a.Capabilities {
		if !capability(c) {
			return fmt.Errorf("capability %q is not a plain name", ellipsis.Clip(c, maxAgentText))
		}
	}
	return nil
}

// Parent is the snapshot from which this one was branched.
type Parent struct {
	Tag         string `json:"tag"`
	ContentHash string `json:"content_hash"`
}

// Descend records that the snapshot was branched from the one with the manifest from.
func (m *Manifest) Descend(from *Manifest, contentHash string) {
	m.Parent = &Parent{Tag: from.Tag, ContentHash: contentHash}
	m.Ancestors = slices.Clone(from.Ancestors)
	if from.Parent != nil {
		m.Ancestors = append(m.Ancestors, *from.Parent)
	}
	m.Ancestors = m.Ancestors[max(0, len(m.Ancestors)-MaxAncestors):]
}

// Branch describes how a running sandbox became this snapshot.
type Branch struct {
	Sandbox     string `json:"sandbox"`
	Mode        string `json:"mode"`
	Mechanism   string `json:"mechanism"`
	PauseUS     int64  `json:"pause_us"`
	Rounds      int    `json:"rounds"`
	Bytes       int64  `json:"bytes"`        // memory that differed from the parent's
	PausedBytes int64  `json:"paused_bytes"` // part of Bytes copied during the pause
	// Transient marks a snapshot made by a guest's fork. It is deleted with its last user.
	Transient bool `json:"transient,omitempty"`
}

// Step is the duration of one step of the creation.
type Step struct {
	Name   string `json:"name"`
	TookMS int64  `json:"took_ms"`
	Bytes  int64  `json:"bytes,omitempty"`
}

// Created returns the time of the snapshot.
func (m *Manifest) Created() time.Time { return time.UnixMilli(m.CreatedUnixMS) }

// Encode validates and encodes the manifest.
func (m *Manifest) Encode() ([]byte, error) {
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("encode manifest of %s: %w", ellipsis.Clip(m.Tag, 80), err)
	}
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode manifest of %s: %w", m.Tag, err)
	}
	b = append(b, '\n')
	if len(b) > MaxManifestBytes {
		return nil, fmt.Errorf("encode manifest of %s: %d bytes, want at most %d", m.Tag, len(b), MaxManifestBytes)
	}
	return b, nil
}

// DecodeManifest decodes and checks a manifest. All its errors wrap ErrNotRestorable and describe the problem.
func DecodeManifest(b []byte) (*Manifest, error) {
	if len(b) > MaxManifestBytes {
		return nil, fmt.Errorf("%w: %s is %d bytes, want at most %d",
			storeerr.ErrNotRestorable, ManifestFile, len(b), MaxManifestBytes)
	}
	// Check the format first: fields of another version may not even parse.
	var v struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", storeerr.ErrNotRestorable, ManifestFile, err)
	}
	if v.Format != Format {
		return nil, fmt.Errorf(
			"%w: %s has format %d, this forkd reads format %d; use the forkd that wrote it, or delete the "+
				"snapshot and recreate it from its image",
			storeerr.ErrNotRestorable, ManifestFile, v.Format, Format)
	}
	m := new(Manifest)
	if err := json.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", storeerr.ErrNotRestorable, ManifestFile, err)
	}
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", storeerr.ErrNotRestorable, ManifestFile, err)
	}
	return m, nil
}

// contentHash returns the hash of a manifest, which identifies the snapshot's content.
func contentHash(manifest []byte) string {
	sum := sha256.Sum256(manifest)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// OwnerPattern matches an owner's name: a tenant's, or an empty one for the operator.
var OwnerPattern = regexp.MustCompile(`^([a-z0-9_]{1,24})?$`)

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// plainName reports whether a name cannot leave the directory or be hidden in it.
func plainName(name string) bool {
	return namePattern.MatchString(name) && filepath.Base(name) == name && name != ManifestFile && name != DigestFile
}

func (m *Manifest) validate() error {
	if m.Format != Format {
		return fmt.Errorf("format is %d, want %d", m.Format, Format)
	}
	if err := CheckTag(m.Tag); err != nil {
		return err
	}
	if !OwnerPattern.MatchString(m.Owner) {
		return fmt.Errorf("owner %q is no tenant's name", ellipsis.Clip(m.Owner, 80))
	}
	if err := m.Shape.Validate(); err != nil {
		return fmt.Errorf("shape: %w", err)
	}
	sizes, err := m.fileSizes()
	if err != nil {
		return err
	}
	if err := m.Memory.validate(); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	if len(m.Ancestors) > MaxAncestors {
		return fmt.Errorf("%d ancestors, want at most %d", len(m.Ancestors), MaxAncestors)
	}
	if len(m.NetworkFacts) > MaxNetworkFacts {
		return fmt.Errorf("%d resolved names, want at most %d", len(m.NetworkFacts), MaxNetworkFacts)
	}
	if err := m.validateSecrets(); err != nil {
		return err
	}
	if err := m.validateState(sizes); err != nil {
		return err
	}
	if err := m.validateCPU(); err != nil {
		return fmt.Errorf("CPU: %w", err)
	}
	if err := m.Agent.validate(); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	return m.validateDisks(sizes)
}

// validateCPU limits text that is displayed to people.
func (m *Manifest) validateCPU() error {
	if n := len(m.CPUFeatures); n > maxFeatures {
		return fmt.Errorf("%d features, want at most %d", n, maxFeatures)
	}
	names := m.CPUFeatures
	if m.CPU != nil {
		names = append(slices.Clip(names), m.CPU.Vendor)
	}
	for _, name := range names {
		odd := func(r rune) bool { return r < ' ' || r > '~' }
		if len(name) > maxCPUText || strings.ContainsFunc(name, odd) {
			return fmt.Errorf("the name %q is not %d printable characters at most", ellipsis.Clip(name, maxCPUText), maxCPUText)
		}
	}
	return nil
}

func (m *Manifest) fileSizes() (map[string]int64, error) {
	if len(m.Files) > maxFiles {
		return nil, fmt.Errorf("%d files, want at most %d", len(m.Files), maxFiles)
	}
	sizes := make(map[string]int64, len(m.Files))
	for _, f := range m.Files {
		switch _, dup := sizes[f.Name]; {
		case !plainName(f.Name):
			return nil, fmt.Errorf("file name %q is not a plain name", ellipsis.Clip(f.Name, 80))
		case dup:
			return nil, fmt.Errorf("file %s is listed twice", f.Name)
		case f.Bytes < 0:
			return nil, fmt.Errorf("file %s has %d bytes", f.Name, f.Bytes)
		}
		sizes[f.Name] = f.Bytes
	}
	return sizes, nil
}

func (c Chain) validate() error {
	switch n := len(c.Layers); {
	case n == 0 || n > MaxChain:
		return fmt.Errorf("%d layers, want 1 to %d", n, MaxChain)
	case c.Own < 0 || c.Own > n:
		return fmt.Errorf("%d of its %d layers are its own", c.Own, n)
	}
	for i, id := range c.Layers {
		if id.IsZero() || slices.Contains(c.Layers[:i], id) {
			return fmt.Errorf("layer %s is listed twice or is none", id)
		}
	}
	return nil
}

func (m *Manifest) validateState(sizes map[string]int64) error {
	size, ok := sizes[m.State.File]
	switch sum, err := hex.DecodeString(m.State.SHA256); {
	case !ok:
		return fmt.Errorf("state file %q is not listed", ellipsis.Clip(m.State.File, 80))
	case size > maxStateBytes:
		return fmt.Errorf("state file has %d bytes, want at most %d", size, maxStateBytes)
	case err != nil || len(sum) != sha256.Size:
		return fmt.Errorf("state's sha256 is %q", ellipsis.Clip(m.State.SHA256, 80))
	}
	return nil
}

func (m *Manifest) validateDisks(sizes map[string]int64) error {
	if n := len(m.Disks); n < m.Shape.Disks || n > m.Shape.Disks+m.Shape.Slots {
		return fmt.Errorf("%d disks, but a shape with %d and %d slots for volumes", n, m.Shape.Disks, m.Shape.Slots)
	}
	for i, d := range m.Disks {
		if (d.Volume != nil) != (i >= m.Shape.Disks) {
			return fmt.Errorf("disk %d: the volumes are not the last disks", i)
		}
		if err := d.validate(sizes); err != nil {
			return fmt.Errorf("disk %d: %w", i, err)
		}
	}
	return nil
}

// validate limits text that is displayed to people.
func (v *Volume) validate() error {
	for _, text := range []string{v.ID, v.Name, v.Path} {
		odd := func(r rune) bool { return r < ' ' }
		if text == "" || len(text) > maxVolumeText || strings.ContainsFunc(text, odd) {
			return fmt.Errorf("the volume's %q is not 1 to %d printable characters", ellipsis.Clip(text, 80), maxVolumeText)
		}
	}
	return nil
}

func (d Disk) validate(sizes map[string]int64) error {
	if d.Volume != nil {
		if err := d.Volume.validate(); err != nil {
			return err
		}
		if len(d.Layers) == 0 {
			return errors.New("a volume without layers")
		}
	}
	if len(d.Layers) == 0 {
		if _, listed := sizes[d.File]; !listed {
			return fmt.Errorf("file %q is not listed", ellipsis.Clip(d.File, 80))
		}
		if !d.ReadOnly || d.Bytes != 0 || d.Own != 0 {
			return errors.New("it is a file and can only be read")
		}
		return nil
	}
	if d.File != "" || d.ReadOnly {
		return errors.New("it has layers and cannot be a file as well, or only be read")
	}
	if d.Bytes <= 0 || d.Bytes > layer.MaxSize || d.Bytes%512 != 0 {
		return fmt.Errorf("it has %d bytes, want whole sectors of 512 and at most %d", d.Bytes, int64(layer.MaxSize))
	}
	return d.Chain.validate()
}
