package reply

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/forkd/forkd/api"
)

// largest records the largest write.
type largest struct {
	bytes.Buffer
	most int
}

func (l *largest) Write(b []byte) (int, error) {
	l.most = max(l.most, len(b))
	return l.Buffer.Write(b)
}

type inner struct {
	Names []string `json:"names,omitempty"`
	Any   any      `json:"any"`
}

// shouted has its own method on the pointer.
type shouted struct{ text string }

func (s *shouted) MarshalJSON() ([]byte, error) { return json.Marshal(strings.ToUpper(s.text)) }

type odd struct {
	inner
	*api.Event
	Names  string          `json:"names"` // hides the field of inner
	Number int             `json:"number,string"`
	Raw    json.RawMessage `json:"raw"`
}

type plain struct {
	inner
	ID      string            `json:"id"`
	At      time.Time         `json:"at"`
	Skipped string            `json:"-"`
	Hidden  [4]inner          `json:"hidden,omitempty"`
	Shouts  []shouted         `json:"shouts"`
	Later   *inner            `json:"later,omitempty"`
	Map     map[string]any    `json:"map"`
	Ints    map[int]string    `json:"ints,omitempty"`
	Bytes   []byte            `json:"bytes"`
	Empty   []string          `json:"empty"`
	Texts   map[string]string `json:"texts,omitempty"`
	private string
}

// Large and small values of every form are encoded in pieces to the same text as with
// encoding/json.
func TestPiecesMakeTheSameText(t *testing.T) {
	long := strings.Repeat("<é\xff\u2028\"", 40_000)
	many := make([]plain, 300)
	for i := range many {
		many[i] = plain{inner: inner{Names: []string{"a", long[:i]}, Any: i}, ID: "x", private: "p",
			Shouts: []shouted{{"quiet"}}, Map: map[string]any{"b": i, "a": nil, "<": []any{1, "2"}}}
	}
	for name, v := range map[string]any{
		"nil": nil, "number": 3, "text": "a<b>&\u2028", "long text": long, "no list": []string(nil),
		"empty list with room": make([]string, 0, Piece), "list": many, "pointer": &many,
		"map": map[string]any{"logs": many, "a": long, "none": nil, "empty": []int{}}, "odd": odd{Number: 3},
		"large odd":   odd{inner: inner{Any: many}, Names: long, Raw: json.RawMessage(`{"a":"<"}`)},
		"large plain": plain{ID: long, Later: &inner{Names: []string{long, "b"}}, Bytes: []byte(long)},
		"shouts":      []shouted{{long}, {"b"}}, "numbers": []json.Number{"1", "2.5"},
		"ints":  plain{Ints: map[int]string{2: long, 10: "b"}, Texts: map[string]string{"k\xff": long}},
		"array": [2]any{long, nil}, "interface": []any{nil, many[0], &many[1], any(long)},
	} {
		t.Run(name, func(t *testing.T) { same(t, v) })
	}
}

func same(t *testing.T, v any) {
	t.Helper()
	var want bytes.Buffer
	if err := encoder(&want).Encode(v); err != nil {
		t.Fatal(err)
	}
	var got largest
	if err := Write(&got, v); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Errorf("got %.300q, want %.300q", got.String(), want.String())
	}
}

// Answers of the API are written in pieces: no piece contains a whole list.
func TestListsComeInPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, v := range []any{[]api.SandboxInfo{}, []api.SnapshotInfo{}, []api.Image{}, []api.Receipt{}, api.SnapshotDiff{},
		api.AuditReport{}, []api.Key{}, []api.NetworkFlow{}, []api.Pool{}, []api.Event{}} {
		t.Run(reflect.TypeOf(v).String(), func(t *testing.T) {
			filled := reflect.New(reflect.TypeOf(v)).Elem()
			fill(r, filled, 0)
			same(t, filled.Interface())
			var got largest
			if err := Write(&got, filled.Interface()); err != nil {
				t.Fatal(err)
			}
			if got.Len() < 4*Piece || got.most > 3*Piece {
				t.Errorf("the largest of the pieces of %d bytes has %d", got.Len(), got.most)
			}
			if size := Size(filled.Interface()); size < int64(got.Len())/4 {
				t.Errorf("%d bytes of JSON count as %d", got.Len(), size)
			}
		})
	}
}

// fill makes a value with 3000 elements in its top-level lists, and few below.
func fill(r *rand.Rand, v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(strings.Repeat("<w ö", 1+r.IntN(8)))
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int, reflect.Int64, reflect.Int32:
		v.SetInt(r.Int64N(1000))
	case reflect.Uint64, reflect.Uint32, reflect.Uint16:
		v.SetUint(r.Uint64N(1000))
	case reflect.Float64:
		v.SetFloat(r.Float64())
	case reflect.Pointer:
		if depth < 8 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem(), depth+1)
		}
	case reflect.Slice:
		n := 3000
		if depth > 2 {
			n = 1 + r.IntN(2)
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(r, v.Index(i), depth+3)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range r.IntN(3) {
			k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(r, k, depth+1)
			fill(r, e, depth+1)
			v.SetMapIndex(k, e)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(r.Int64N(1<<32), 0).UTC()))
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(r, v.Field(i), depth+1)
			}
		}
	}
}

func FuzzWriteString(f *testing.F) {
	f.Add("a\xe2\x82", 30_000)
	f.Add("\"\\\n\u2028", 1)
	f.Fuzz(func(t *testing.T, s string, times int) {
		s = strings.Repeat(s, min(max(times, 0), 200_000/(len(s)+1)))
		var text, b64 bytes.Buffer
		if err := WriteString(&text, s); err != nil {
			t.Fatal(err)
		}
		if err := WriteBase64(&b64, s); err != nil {
			t.Fatal(err)
		}
		var got string
		var raw []byte
		if err := json.Unmarshal(text.Bytes(), &got); err != nil || utf8.ValidString(s) && got != s {
			t.Errorf("text: %v", err)
		}
		if err := json.Unmarshal(b64.Bytes(), &raw); err != nil || string(raw) != s {
			t.Errorf("base64: %v", err)
		}
	})
}
