package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/forkd/forkd/internal/confine/jail"
	"github.com/forkd/forkd/internal/confine/seccomp"
	"github.com/forkd/forkd/internal/leaf/vmspec"
)

// Arguments and descriptors of forkd-spawn.
const (
	Name     = "forkd-spawn" // argument 0
	ArgServe = "serve"       // the only other argument
	ArgWait  = "wait"        // or this one: wait until its users are mapped, then serve
	FDDaemon = 3             // its end of the socket
	FDMapped = 4             // with ArgWait: yields a byte once the users are mapped
)

// Version is the first byte of each message.
const Version = 1

// Size of each message, in bytes.
const Size = 64

// Kind is the kind of a message.
type Kind uint8

// Kinds of messages.
const (
	Spawn   Kind = iota + 1 // to forkd-spawn: start a VMM; its Files are attached
	Spawned                 // from it: the VMM runs; a pidfd is attached
	Failed                  // from it: the start failed; Part and Errno hold the failed step
	Ended                   // from it: a Spawned process has ended, with Status
	Probe                   // to it: request the supported parts of a jail
	Probed                  // from it: Errnos
)

// Files are the descriptors of a Spawn as bits. The message has them in this order.
type Files uint16

// The descriptors of a VMM.
const (
	Program     Files = 1 << iota // the VMM's executable
	Null                          // standard input and output
	Log                           // standard error
	KVM                           // /dev/kvm
	Control                       // listening control socket
	Vsock                         // listening vsock socket
	Console                       // console log
	Failpoints                    // in crash tests only
	Userfaultfd                   // /dev/userfaultfd, where the host has one
	Cgroup                        // directory of the control group to start in

	Required = Program | Null | Log | KVM | Control | Vsock | Console
	AllFiles = Required | Failpoints | Userfaultfd | Cgroup
	MaxFiles = 10
)

// Count returns the number of descriptors.
func (f Files) Count() int { return bits.OnesCount16(uint16(f)) }

// Message is one message. Fields unused by its kind are zero.
type Message struct {
	Kind Kind // defines the fields in use
	// ID links an answer to its request. The daemon chooses it.
	ID uint32

	// Only for Spawn.
	Want     jail.Set     // parts of the jail; the start fails if one cannot be applied
	Shape    vmspec.Shape // memory, vCPUs and disks of the VM
	Prewarm  bool         // as in vmctl's wire.Start
	Files    Files        // the attached descriptors
	FileSize uint64       // size limit of its written files, in bytes
	Seccomp  seccomp.Mode // of the VMM's own filters; empty: off

	PID    uint32    // Spawned, Ended: in the daemon's PID namespace
	Status uint32    // Ended: as in waitpid(2)
	Part   jail.Part // Failed: jail.Parts is the start itself
	Errno  uint32    // Failed

	Errnos [jail.Parts]uint8 // Probed: by part, 0 if supported
}

// ErrMessage is returned for an invalid message, or one of another version.
var ErrMessage = errors.New("bad message of forkd-spawn")

// Offsets of the fields.
const (
	atVersion  = 0
	atKind     = 1
	atPrewarm  = 2
	atPart     = 3
	atID       = 4
	atWant     = 8
	atPID      = 12
	atMemory   = 16 // MiB
	atVCPUs    = 20
	atDisks    = 21
	atFiles    = 22
	atFileSize = 24
	atStatus   = 32 // or errno
	atSeccomp  = 36
	atSlots    = 37
	atErrnos   = 40
)

// modes are the values of Seccomp, indexed by their encoding.
var modes = []seccomp.Mode{"", seccomp.On, seccomp.Log, seccomp.Trap}

// Encode returns the message's bytes. It returns an error if Decode would refuse the message.
func (m Message) Encode() (b [Size]byte, err error) {
	b = m.bytes()
	back, err := Decode(b[:])
	if err == nil && back != m {
		err = fmt.Errorf("%w: kind %d with what it has no use for", ErrMessage, m.Kind)
	}
	return b, err
}

// Decode reads a message. It refuses encodings not produced by Encode: each message has exactly one
// encoding.
func Decode(b []byte) (m Message, err error) {
	if len(b) != Size {
		return m, fmt.Errorf("%w: %d bytes, want %d", ErrMessage, len(b), Size)
	}
	if b[atVersion] != Version {
		return m, fmt.Errorf("%w: version %d, want %d", ErrMessage, b[atVersion], Version)
	}
	le := binary.LittleEndian
	m.Kind, m.ID = Kind(b[atKind]), le.Uint32(b[atID:])
	status := le.Uint32(b[atStatus:])
	switch m.Kind {
	case Spawn:
		err = m.decodeSpawn(b)
	case Spawned:
		m.PID = le.Uint32(b[atPID:])
	case Failed:
		m.Part, m.Errno = jail.Part(b[atPart]), status
	case Ended:
		m.PID, m.Status = le.Uint32(b[atPID:]), status
	case Probe:
	case Probed:
		copy(m.Errnos[:], b[atErrnos:])
	default:
		err = fmt.Errorf("%w: kind %d", ErrMessage, m.Kind)
	}
	if err == nil {
		err = m.check()
	}
	if err == nil && m.bytes() != [Size]byte(b) {
		err = fmt.Errorf("%w: kind %d with bytes that have no meaning", ErrMessage, m.Kind)
	}
	if err != nil {
		return Message{}, err
	}
	return m, nil
}

func (m *Message) decodeSpawn(b []byte) error {
	le := binary.LittleEndian
	m.Want, m.Files, m.FileSize = jail.Set(le.Uint32(b[atWant:])), Files(le.Uint16(b[atFiles:])), le.Uint64(b[atFileSize:])
	m.Prewarm = b[atPrewarm] == 1
	if int(b[atSeccomp]) >= len(modes) {
		return fmt.Errorf("%w: mode %d of filters", ErrMessage, b[atSeccomp])
	}
	m.Seccomp = modes[b[atSeccomp]]
	m.Shape = vmspec.Shape{
		MemoryMiB: int(le.Uint32(b[atMemory:])), VCPUs: int(b[atVCPUs]), Disks: int(b[atDisks]),
		Slots: int(b[atSlots]),
	}
	if err := m.Shape.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrMessage, err)
	}
	return nil
}

// check returns an error for invalid values.
func (m *Message) check() error {
	switch {
	case m.Kind == Spawn && (m.Want&^jail.All != 0 || m.FileSize == 0):
		return fmt.Errorf("%w: parts %#x, files of %d bytes", ErrMessage, uint32(m.Want), m.FileSize)
	case m.Kind == Spawn && (m.Files&^AllFiles != 0 || m.Files&Required != Required):
		return fmt.Errorf("%w: descriptors %#x", ErrMessage, uint16(m.Files))
	case (m.Kind == Spawned || m.Kind == Ended) && (m.PID == 0 || m.PID >= 1<<31):
		return fmt.Errorf("%w: process %d", ErrMessage, m.PID)
	case m.Kind == Ended && m.ID != 0:
		return fmt.Errorf("%w: an end that answers %d", ErrMessage, m.ID)
	case m.Kind == Failed && (m.Part > jail.Parts || m.Errno == 0 || m.Errno >= 4096):
		return fmt.Errorf("%w: part %d, error %d", ErrMessage, m.Part, m.Errno)
	}
	return nil
}

// bytes returns all fields at their offsets.
func (m Message) bytes() (b [Size]byte) {
	le := binary.LittleEndian
	b[atVersion], b[atKind], b[atPart] = Version, byte(m.Kind), byte(m.Part)
	if m.Prewarm {
		b[atPrewarm] = 1
	}
	le.PutUint32(b[atID:], m.ID)
	le.PutUint32(b[atWant:], uint32(m.Want))
	le.PutUint32(b[atPID:], m.PID)
	le.PutUint32(b[atMemory:], uint32(m.Shape.MemoryMiB))
	b[atVCPUs], b[atDisks] = byte(m.Shape.VCPUs), byte(m.Shape.Disks)
	le.PutUint16(b[atFiles:], uint16(m.Files))
	le.PutUint64(b[atFileSize:], m.FileSize)
	le.PutUint32(b[atStatus:], m.Status|m.Errno)
	b[atSlots] = byte(m.Shape.Slots)
	b[atSeccomp] = byte(max(0, slices.Index(modes, m.Seccomp)))
	copy(b[atErrnos:], m.Errnos[:])
	return b
}
