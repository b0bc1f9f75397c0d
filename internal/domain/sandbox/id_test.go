package sandbox

import (
	"bytes"
	"strings"
	"testing"
)

func TestIDsWithoutDashes(t *testing.T) {
	for name, want := range map[string]string{
		"sb5f3a00120001":           "sb-5f3a0012-0001",
		"sb0000000112345":          "sb-00000001-12345",
		"sb-5f3a0012-0001":         "sb-5f3a0012-0001",
		"sb5f3a0012001":            "sb5f3a0012001", // the index is too short
		"sb5F3A00120001":           "sb5F3A00120001",
		"xsb5f3a00120001":          "xsb5f3a00120001",
		"":                         "",
		"sb-5f3a00120001":          "sb-5f3a00120001",
		"sb5f3a00120001\nand":      "sb5f3a00120001\nand",
		"sbabcdefgh234567ab":       "sb-abcdefgh234567ab",
		"sb2222222222222222":       "sb-2222222222222222", // valid in both forms, but longer
		"sbabcdefgh234567a":        "sbabcdefgh234567a",
		"sbabcdefgh234567ababcde":  "sb-abcdefgh234567ababcde", // with the key of a node
		"sbabcdefgh234567ababcd":   "sbabcdefgh234567ababcd",
		"sbabcdefgh234567ababcdef": "sbabcdefgh234567ababcdef",
		"sb5f3a001212345678":       "sb5f3a001212345678", // 1 and 8 are not base32 digits
	} {
		if got := CanonicalID(name); got != want {
			t.Errorf("%q became %q, want %q", name, got, want)
		}
	}
	if got := DNSID("sb-5f3a0012-0001"); got != "sb5f3a00120001" || CanonicalID(got) != "sb-5f3a0012-0001" {
		t.Errorf("for host names: %q", got)
	}
}

func TestNewIDs(t *testing.T) {
	for _, random := range [][]byte{make([]byte, IDBytes), bytes.Repeat([]byte{0xff}, IDBytes), []byte("0123456789")} {
		id := NewID(random)
		if !ValidID(id) || len(id) != 19 || CanonicalID(DNSID(id)) != id || CanonicalID(id) != id {
			t.Errorf("%x became %q", random, id)
		}
		if label := "65535-" + DNSID(id); len(label) > 63 {
			t.Errorf("%s is no label of a host name", label)
		}
	}
	for _, bad := range []string{"", "sb-", "sb-ABCDEFGH234567AB", "sb-abcdefgh234567a", "sb-../../../../../../x", "sb-5f3a0012-1",
		"sb-5f3a0012-00000001", "sb-abcdefgh234567ab\n"} {
		if ValidID(bad) {
			t.Errorf("%q is an id", bad)
		}
	}
	if !ValidID("sb-5f3a0012-0001") {
		t.Error("an id of an earlier daemon is none")
	}
}

func TestIDsWithTheKeyOfANode(t *testing.T) {
	key := NodeKeyOf("9f3c1c0e-6d0a-4a52-9d38-0a8f6b1c2d3e")
	if key != "rsrnu" || key == NodeKeyOf("node-b") {
		t.Errorf("the key is %q: ids of running sandboxes have the former key", key)
	}
	random := []byte("0123456789")
	id := key.NewID(random)
	if !ValidID(id) || len(id) != 24 || NodeKeyIn(id) != key || NodeKeyIn(DNSID(id)) != key || CanonicalID(DNSID(id)) != id {
		t.Errorf("the id is %q, its key %q", id, NodeKeyIn(id))
	}
	if !strings.HasPrefix(id, NewID(random)) {
		t.Errorf("%s lacks random digits", id)
	}
	if label := "65535-" + DNSID(id); len(label) > 63 {
		t.Errorf("%s is no label of a host name", label)
	}
	if plain := NodeKey("").NewID(random); plain != NewID(random) || NodeKeyIn(plain) != "" {
		t.Errorf("without a node: %q", plain)
	}
	for _, foreign := range []string{"", "sb-5f3a0012-0001", id + "a", id[:23], strings.ToUpper(id), id + "\n", "x" + id} {
		if got := NodeKeyIn(foreign); got != "" {
			t.Errorf("%q has the key %q", foreign, got)
		}
	}
}

func FuzzCanonicalID(f *testing.F) {
	f.Add("sb5f3a00120001")
	f.Add("sbabcdefgh234567ab")
	f.Add("sbabcdefgh234567ababcde")
	f.Fuzz(func(t *testing.T, name string) {
		if id := CanonicalID(name); id != name && (!ValidID(id) || DNSID(id) != name) {
			t.Errorf("%q became %q", name, id)
		}
	})
}

func TestTagsOfPauses(t *testing.T) {
	for _, id := range []string{"sb-5f3a0012-0001", NewID(make([]byte, IDBytes))} {
		if tag := PauseTag(id, []byte{0, 0xfe, 1, 2}); PausedIn(tag) != id || tag != "pause-"+id+"-00fe0102" {
			t.Errorf("%s is of %q", tag, PausedIn(tag))
		}
	}
	for _, other := range []string{"", "pause-", "pause--", "pause-sb-5f3a0012-0001", "pause-sb-5f3a0012-0001-",
		"pause-sb-5f3a0012-0001-x", "pause-sb-5f3a0012-0001-0/..", "pause-sb-5f3a0012-0001-00\n", "sb-5f3a0012-0001-00",
		"xpause-sb-5f3a0012-0001-00", "pause-me-00", "pause-sb-5f3a0012-0001--00"} {
		if id := PausedIn(other); id != "" {
			t.Errorf("%q is of %q", other, id)
		}
	}
}
