package sandbox

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"regexp"
	"strings"
)

// IDBytes is the number of random bytes in an id. Public ports are open to every client with the sandbox's id, so
// 80 bits keep ids from being guessed.
const IDBytes = 10

// IDPattern matches the ids of sandboxes: 16 random digits, and 5 more with the key of a node. It includes the format
// of earlier daemons: 32 random bits, a dash and the index of the child.
const IDPattern = `sb-(?:[a-z2-7]{16}(?:[a-z2-7]{5})?|[0-9a-f]{8}-[0-9]{4,7})`

// ValidID reports whether s is the id of a sandbox.
var ValidID = regexp.MustCompile(`^` + IDPattern + `$`).MatchString

var idDigits = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewID returns the id encoding IDBytes random bytes. It fits into a host name together with a port.
func NewID(random []byte) string { return "sb-" + idDigits.EncodeToString(random[:IDBytes]) }

// NodeKey is the part of an id that names its node. It is empty for daemons without a node.
type NodeKey string

const nodeKeyDigits = 5

// NodeKeyOf returns the key of a node by its unique name. Two nodes of a cluster may have the same key; whoever lists
// nodes has to check this.
func NodeKeyOf(unique string) NodeKey {
	sum := sha256.Sum256([]byte("forkd node\n" + unique))
	return NodeKey(idDigits.EncodeToString(sum[:])[:nodeKeyDigits])
}

// NewID returns a new id with the node's key.
func (k NodeKey) NewID(random []byte) string { return NewID(random) + string(k) }

// NodeKeyIn returns the key within an id. It returns an empty key for ids without one, and for other names. Clients
// choose the ids they send: a key proves nothing about the sandbox.
func NodeKeyIn(id string) NodeKey {
	if m := keyedID.FindStringSubmatch(id); m != nil {
		return NodeKey(m[1])
	}
	return ""
}

// keyedID matches an id with a key, with and without its dash.
var keyedID = regexp.MustCompile(`^sb-?[a-z2-7]{16}([a-z2-7]{5})$`)

// dnsID matches an id without its dashes. The forms differ in length, so their dashes are known.
var dnsID = regexp.MustCompile(`^sb(?:([a-z2-7]{16}(?:[a-z2-7]{5})?)|([0-9a-f]{8})([0-9]{4,7}))$`)

// DNSID returns the id for use in host names. It has no dashes, because a dash separates port and id there.
func DNSID(id string) string { return strings.ReplaceAll(id, "-", "") }

// CanonicalID returns the id for a name without dashes. It returns other names unchanged.
func CanonicalID(name string) string {
	switch parts := dnsID.FindStringSubmatch(name); {
	case parts == nil:
		return name
	case parts[1] != "":
		return "sb-" + parts[1]
	default:
		return "sb-" + parts[2] + "-" + parts[3]
	}
}

const pausePrefix = "pause-"

// PauseTag returns the tag of a snapshot that a sandbox is paused in. random makes it unique.
func PauseTag(id string, random []byte) string {
	return pausePrefix + id + "-" + hex.EncodeToString(random)
}

// PausedIn returns the sandbox that is paused in the snapshot with a tag, or an empty string for other tags.
func PausedIn(tag string) string {
	rest, ok := strings.CutPrefix(tag, pausePrefix)
	end := strings.LastIndexByte(rest, '-')
	if !ok || end < 0 || !ValidID(rest[:end]) {
		return ""
	}
	if random := rest[end+1:]; random == "" || strings.Trim(random, "0123456789abcdef") != "" {
		return ""
	}
	return rest[:end]
}
