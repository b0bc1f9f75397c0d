package image

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"

	"github.com/forkd/forkd/internal/leaf/vmspec"
)

// Names of an image's files.
const (
	KernelFile   = "vmlinux"
	InitrdFile   = "initrd"
	RootFile     = "root.erofs"
	UpperFile    = "upper.disk" // absent if the recipe has no disk
	MetadataFile = "image.json"

	// guestFile is the path of the metadata in the root, which the agent reads.
	guestFile = "/etc/forkd/image.json"
)

// FormatVersion is the version of image.json: docs/inside/formats/image.md.
const FormatVersion = 2

// guestFormatVersion is the version of guestMetadata, which the agent reads in the root.
const guestFormatVersion = 1

// maxMetadata and maxFile limit reads from a store or an import.
const (
	maxMetadata = 4 << 20
	maxFile     = 64 << 30
)

// dataFiles returns all files of an image except its metadata, in the order of an export.
func (m Metadata) dataFiles() []string {
	files := []string{KernelFile, InitrdFile, RootFile}
	if m.Defaults.DiskMiB > 0 {
		files = append(files, UpperFile)
	}
	return files
}

var digestRE = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Metadata is the content of image.json. It contains no times, so the same inputs give the same bytes.
type Metadata struct {
	FormatVersion int                `json:"format_version"`
	Name          string             `json:"name"`
	Description   string             `json:"description,omitempty"`
	Suite         string             `json:"suite"`
	Kernel        KernelInfo         `json:"kernel"`
	Defaults      Defaults           `json:"defaults"`
	Files         map[string]FileSum `json:"files"`
	// Packages lists the root's Debian packages, "name=version", sorted, followed by packages of PyPI,
	// "pip:name=version", and of the npm registry, "npm:name=version".
	Packages []string `json:"packages"`
	// Container is set for an image of a container tool. It is nil for a recipe.
	Container *Container `json:"container,omitempty"`
}

// Container describes an image of a container tool, and the settings of its configuration for programs.
type Container struct {
	Reference    string       `json:"reference"` // for people: the registry's reference, or a file's name
	Digest       string       `json:"digest"`    // of the manifest, sha256:<hex>
	Entrypoint   []string     `json:"entrypoint,omitempty"`
	Cmd          []string     `json:"cmd,omitempty"`
	ExposedPorts []string     `json:"exposed_ports,omitempty"` // "80/tcp"
	StopSignal   string       `json:"stop_signal,omitempty"`
	Healthcheck  *Healthcheck `json:"healthcheck,omitempty"`
}

// Healthcheck is the command of a container image for the check of its service. Times are in seconds.
type Healthcheck struct {
	Test            []string `json:"test,omitempty"` // in Docker's form: CMD or CMD-SHELL first
	IntervalSecs    float64  `json:"interval_secs,omitempty"`
	TimeoutSecs     float64  `json:"timeout_secs,omitempty"`
	StartPeriodSecs float64  `json:"start_period_secs,omitempty"`
	Retries         int      `json:"retries,omitempty"`
}

// KernelInfo describes an image's kernel.
type KernelInfo struct {
	Release string `json:"release"` // as uname -r
	Package string `json:"package"`
	Version string `json:"version"`
}

// Defaults holds the recipe's settings for a running guest.
type Defaults struct {
	MemoryMiB int               `json:"memory_mib"`
	VCPUs     int               `json:"vcpus"`
	DiskMiB   int               `json:"disk_mib,omitempty"` // 0 if the root's writable layer is in memory
	Env       map[string]string `json:"env,omitempty"`
	User      string            `json:"user"`
	Workdir   string            `json:"workdir"`
	Start     string            `json:"start,omitempty"`
	Ready     *Ready            `json:"ready,omitempty"`
	Warm      []Warm            `json:"warm,omitempty"`
	FirstUse  string            `json:"first_use,omitempty"`
}

// FileSum is the expected size and digest of a file.
type FileSum struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// guestMetadata is the metadata in the root, for the agent.
type guestMetadata struct {
	FormatVersion int               `json:"format_version"`
	Name          string            `json:"name"`
	Env           map[string]string `json:"env"`
	User          string            `json:"user"`
	Workdir       string            `json:"workdir"`
	DiskDirs      []string          `json:"disk_dirs,omitempty"` // directly on the writable disk
	Limits        GuestLimits       `json:"limits,omitzero"`
}

// encode returns the content of image.json.
func (m Metadata) encode() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(m); err != nil {
		return nil, fmt.Errorf("encode image metadata: %w", err)
	}
	return b.Bytes(), nil
}

// ID returns the image's digest: the digest of its metadata, which contains the digests of its files.
func (m Metadata) ID() (string, error) {
	b, err := m.encode()
	if err != nil {
		return "", err
	}
	return sum(b), nil
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// parseMetadata decodes and checks image.json. It ignores unknown keys of later minor additions, and rejects
// other format versions.
func parseMetadata(b []byte) (Metadata, error) {
	var m Metadata
	if len(b) > maxMetadata {
		return m, fmt.Errorf("%w: %s is larger than %d MiB", ErrDamaged, MetadataFile, maxMetadata>>20)
	}
	var version struct {
		FormatVersion int `json:"format_version"`
	}
	if err := json.Unmarshal(b, &version); err != nil {
		return m, fmt.Errorf("%w: %s: %w", ErrDamaged, MetadataFile, err)
	}
	if version.FormatVersion != FormatVersion {
		return m, fmt.Errorf("%w: %s has format version %d, this forkd reads %d: build the image again",
			ErrDamaged, MetadataFile, version.FormatVersion, FormatVersion)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("%w: %s: %w", ErrDamaged, MetadataFile, err)
	}
	if err := m.check(); err != nil {
		return m, fmt.Errorf("%w: %s: %w", ErrDamaged, MetadataFile, err)
	}
	return m, nil
}

func (m Metadata) check() error {
	if err := CheckName(m.Name); err != nil {
		return err
	}
	if m.Defaults.DiskMiB < 0 {
		return fmt.Errorf("it has a disk of %d MiB", m.Defaults.DiskMiB)
	}
	if r := m.Defaults.Ready; r != nil {
		if err := r.check(m.Defaults.Start); err != nil {
			return err
		}
	}
	want := m.dataFiles()
	if len(m.Files) != len(want) {
		return fmt.Errorf("it names %d files, want %d", len(m.Files), len(want))
	}
	for _, name := range want {
		f, ok := m.Files[name]
		if !ok {
			return fmt.Errorf("it does not name %s", name)
		}
		if f.Size <= 0 || f.Size > maxFile || !digestRE.MatchString(f.SHA256) {
			return fmt.Errorf("it has an impossible size or digest of %s", name)
		}
	}
	shape := vmspec.Shape{MemoryMiB: m.Defaults.MemoryMiB, VCPUs: m.Defaults.VCPUs, Disks: 1}
	return shape.Validate()
}

// errTooLarge is wrapped if a reader has more than the allowed size.
var errTooLarge = errors.New("too large")

func readCapped(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%w: more than %d bytes", errTooLarge, limit)
	}
	return b, nil
}
