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
	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/store/layer"
)

// Format is the version of the manifest that this package writes, and the only
// one that it reads.
const Format = 2

// Limits on what is decoded; docs/inside/formats/snapshot.md names them.
const (
	MaxManifestBytes = 4 << 20
	// MaxChain is how many layers an image of a snapshot may have. Each is an open
	// file in every child's VMM, and a message to it carries only so many.
	MaxChain = 64
	// MaxAncestors is how many snapshots a manifest names that its parent came from.
	MaxAncestors = 256
	// MaxNetworkFacts is how many resolved names a manifest keeps.
	MaxNetworkFacts = 128
	maxFiles        = 64
	maxStateBytes   = 64 << 20
	maxFeatures     = 1024 // of a CPU
	maxCPUText      = 64   // bytes of a feature's or a vendor's name
	// Of what an agent says of itself.
	maxCapabilities = 64
	maxAgentText    = 64 // bytes of its version, and of a capability's name
)

// Names of the files that every snapshot has.
const (
	ManifestFile = "manifest.json"
	StateFile    = "vmstate"
	DigestFile   = "digests"
)

// WorkingSetFile is the name of the set of pages that every child touches (package
// workingset). A snapshot need not have it.
const WorkingSetFile = "working-set"

// EvalSetFile is the name of the same for a child that has evaluated something in a warmed
// interpreter: what is in WorkingSetFile, and more. A snapshot need not have it.
const EvalSetFile = "working-set-eval"

// ExecSetFile is the name of the same for a child that has run a first program. A snapshot need not
// have it.
const ExecSetFile = "working-set-exec"

// IsWorkingSet tells whether a file has such a set.
func IsWorkingSet(name string) bool {
	return name == WorkingSetFile || name == EvalSetFile || name == ExecSetFile
}

// DiskFile is the name of the i-th disk's file, if it has one: it is read only.
func DiskFile(i int) string { return fmt.Sprintf("disk%d", i) }

// Manifest is the account of one snapshot. Paths in it are plain names of files
// beside it, and layers are named by ID, so a store may be moved or copied as a whole.
type Manifest struct {
	Format        int    `json:"format"`
	Tag           string `json:"tag"`
	Owner         string `json:"owner,omitempty"` // the tenant that it belongs to; empty: the operator
	CreatedUnixMS int64  `json:"created_unix_ms"`
	Image         *Image `json:"image,omitempty"` // nil: booted from a bare kernel and root file system

	Shape   vmspec.Shape `json:"shape"`
	Cmdline string       `json:"cmdline"`
	Files   []File       `json:"files"` // every file but the manifest and the digests
	Memory  Chain        `json:"memory"`
	State   State        `json:"state"`
	Disks   []Disk       `json:"disks,omitempty"`

	// CPU and CPUFeatures are what the guest has seen, for people: the VM's state
	// holds the table that restoring checks. A snapshot from before they were written has none.
	CPU         *CPU     `json:"cpu,omitempty"`
	CPUFeatures []string `json:"cpu_features,omitempty"`
	Languages   []string `json:"languages,omitempty"`
	Agent       Agent    `json:"agent"`
	// Network is the policy of sandboxes that are forked from it without one of their
	// own; nil: nothing is allowed. There are no secrets in it.
	Network *netpolicy.Spec `json:"network,omitempty"`
	// PublicPorts opens the ports of sandboxes that are forked from it, unless a fork says otherwise.
	// Without it they ask for a token, which is not in it. A branch has the setting of its sandbox.
	PublicPorts bool `json:"public_ports,omitempty"`
	// NetworkFacts are names that its guest had resolved, and to which address, at most
	// MaxNetworkFacts: they are in the guest's memory, and rules by name go on holding for them.
	NetworkFacts []netpolicy.Exported `json:"network_facts,omitempty"`
	Parent       *Parent              `json:"parent,omitempty"` // nil: it depends on none
	// Ancestors are the snapshots that Parent was branched from in turn, root first:
	// they are found even when one in between is gone. At most MaxAncestors, the nearest.
	Ancestors []Parent `json:"ancestors,omitempty"`
	Branch    *Branch  `json:"branch,omitempty"` // nil: it was made from an image
	Steps     []Step   `json:"steps,omitempty"`
}

// Image is what the parent was booted from.
type Image struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
	Kernel string `json:"kernel,omitempty"` // version
}

// CPU is a processor as it tells itself from others.
type CPU struct {
	Vendor   string `json:"vendor"` // as CPUID spells it: GenuineIntel, AuthenticAMD
	Family   int    `json:"family"`
	Model    int    `json:"model"`
	Stepping int    `json:"stepping"`
}

// File is one file of the snapshot.
type File struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// Chain is an image as a stack of layers in the layer store.
type Chain struct {
	Layers []layer.ID `json:"layers,omitempty"` // base first
	// Own is how many of them, from the top, are not those of the snapshot that it
	// was branched from.
	Own int `json:"own,omitempty"`
}

// OwnSince is how many of the layers, from the top, are not in a chain below.
func (c Chain) OwnSince(below Chain) int {
	same := 0
	for same < min(len(c.Layers), len(below.Layers)) && c.Layers[same] == below.Layers[same] {
		same++
	}
	return len(c.Layers) - same
}

// State is the VM's state: CPUs, interrupt controllers, devices.
type State struct {
	File   string `json:"file"`
	SHA256 string `json:"sha256"`
}

// Disk is a block device: a file that is read only, or layers under what each
// child writes.
type Disk struct {
	File     string `json:"file,omitempty"`
	ReadOnly bool   `json:"read_only"`
	Bytes    int64  `json:"bytes,omitempty"` // of a disk of layers: whole sectors of 512
	Chain
}

// LayerBytes is the size of a disk's layers: the disk's, in whole blocks.
func (d Disk) LayerBytes() int64 {
	return (d.Bytes + layer.BlockSize - 1) / layer.BlockSize * layer.BlockSize
}

// Chains are the snapshot's images: its memory, then its disks of layers.
func (m *Manifest) Chains() []Chain {
	all := []Chain{m.Memory}
	for _, d := range m.Disks {
		if len(d.Layers) > 0 {
			all = append(all, d.Chain)
		}
	}
	return all
}

// LayerIDs are the layers that the snapshot needs, each once.
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

// Agent is what the guest's agent said of itself before the snapshot.
type Agent struct {
	Version string `json:"version,omitempty"`
	// Capabilities are what it can beyond what every agent can, by names of package
	// agentproto: nothing else is asked of it in the snapshot's children. A snapshot from
	// before they were written has none.
	Capabilities []string `json:"capabilities,omitempty"`
}

// Can says whether the agent can do what a name stands for.
func (a Agent) Can(capability string) bool { return slices.Contains(a.Capabilities, capability) }

// Bounded is what is kept of an agent, which may say anything: names that are none are
// left out.
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

// Parent is the snapshot that this one was branched from.
type Parent struct {
	Tag         string `json:"tag"`
	ContentHash string `json:"content_hash"`
}

// Descend makes the manifest that of a snapshot which was branched from one with another.
func (m *Manifest) Descend(from *Manifest, contentHash string) {
	m.Parent = &Parent{Tag: from.Tag, ContentHash: contentHash}
	m.Ancestors = slices.Clone(from.Ancestors)
	if from.Parent != nil {
		m.Ancestors = append(m.Ancestors, *from.Parent)
	}
	m.Ancestors = m.Ancestors[max(0, len(m.Ancestors)-MaxAncestors):]
}

// Branch is how a running sandbox became this snapshot.
type Branch struct {
	Sandbox     string `json:"sandbox"`
	Mode        string `json:"mode"`
	Mechanism   string `json:"mechanism"`
	PauseUS     int64  `json:"pause_us"`
	Rounds      int    `json:"rounds"`
	Bytes       int64  `json:"bytes"`        // of memory that differed from the parent
	PausedBytes int64  `json:"paused_bytes"` // of them copied during the pause
	// Transient: a guest forked itself, and the snapshot goes with the last that needs it.
	Transient bool `json:"transient,omitempty"`
}

// Step is how long one step of the making took.
type Step struct {
	Name   string `json:"name"`
	TookMS int64  `json:"took_ms"`
	Bytes  int64  `json:"bytes,omitempty"`
}

// Created is the time of the snapshot.
func (m *Manifest) Created() time.Time { return time.UnixMilli(m.CreatedUnixMS) }

// Encode validates the manifest and gives its bytes.
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

// DecodeManifest reads and checks a manifest. Whatever is wrong with it is an
// ErrNotRestorable that says what.
func DecodeManifest(b []byte) (*Manifest, error) {
	if len(b) > MaxManifestBytes {
		return nil, fmt.Errorf("%w: %s is %d bytes, want at most %d",
			ErrNotRestorable, ManifestFile, len(b), MaxManifestBytes)
	}
	// The format first: fields of another version may not even parse.
	var v struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrNotRestorable, ManifestFile, err)
	}
	if v.Format != Format {
		return nil, fmt.Errorf("%w: %s has format %d, this forkd reads format %d; use the forkd that wrote it, or delete "+
			"the snapshot and create it anew from its image",
			ErrNotRestorable, ManifestFile, v.Format, Format)
	}
	m := new(Manifest)
	if err := json.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrNotRestorable, ManifestFile, err)
	}
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrNotRestorable, ManifestFile, err)
	}
	return m, nil
}

// contentHash names a snapshot by what is in it.
func contentHash(manifest []byte) string {
	sum := sha256.Sum256(manifest)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// OwnerPattern is what an owner may be called: nothing, for the operator, or a tenant's name.
var OwnerPattern = regexp.MustCompile(`^([a-z0-9_]{1,24})?$`)

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// plainName accepts a name that cannot leave the directory or hide in it.
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

// validateCPU bounds what is shown to people.
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
	if len(m.Disks) != m.Shape.Disks {
		return fmt.Errorf("%d disks, but a shape with %d", len(m.Disks), m.Shape.Disks)
	}
	for i, d := range m.Disks {
		if err := d.validate(sizes); err != nil {
			return fmt.Errorf("disk %d: %w", i, err)
		}
	}
	return nil
}

func (d Disk) validate(sizes map[string]int64) error {
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
