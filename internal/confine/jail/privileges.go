package jail

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/jail/stage"
)

// becomeUser switches to a user of the range, without groups. In a user namespace it does nothing: the namespace
// has one user, and no right to change groups.
func (p Plan) becomeUser(*stage.Script) ([]stage.Call, error) {
	if p.UID == 0 {
		return nil, nil
	}
	id := uint64(p.UID)
	return []stage.Call{
		call(unix.SYS_SETGROUPS, 0, 0),
		call(unix.SYS_SETRESGID, id, id, id),
		call(unix.SYS_SETRESUID, id, id, id),
	}, nil
}

// secureBits are set so that an exec by uid 0, which exists in a user namespace, gains no capabilities. They are
// locked. (SECBIT_NOROOT, SECBIT_NO_SETUID_FIXUP stays off, SECBIT_NO_CAP_AMBIENT_RAISE.)
const secureBits = 1<<0 | 1<<1 | 1<<6 | 1<<7

// maxCapabilities is the maximum number in any kernel, because a capset has this many bits.
const maxCapabilities = 64

// dropBounding makes sure that no exec gains capabilities. It fails without CAP_SETPCAP.
func dropBounding(*stage.Script) (calls []stage.Call, err error) {
	for c := range maxCapabilities {
		// This kernel has no more capabilities.
		if _, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0); err != nil {
			break
		}
		calls = append(calls, call(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, uint64(c)))
	}
	return append(calls, call(unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, secureBits)), nil
}

func dropCapabilities(s *stage.Script) ([]stage.Call, error) {
	// Version 3 has two parts of data with three sets each; all are empty.
	header := binary.LittleEndian.AppendUint64(nil, unix.LINUX_CAPABILITY_VERSION_3)
	var none [2 * 3 * 4]byte
	return []stage.Call{
		call(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL),
		call(unix.SYS_CAPSET, s.Bytes(header), s.Bytes(none[:])),
	}, nil
}

func noNewPrivs(*stage.Script) ([]stage.Call, error) {
	return []stage.Call{call(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1)}, nil
}
