package serveconfig

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/spf13/pflag"

	"github.com/forkd/forkd/internal/leaf/ellipsis"
	"github.com/forkd/forkd/internal/leaf/fieldnames"
)

// maxFile limits the size of a configuration file, in bytes.
const maxFile = 1 << 20

// File is a configuration file that was read.
type File struct {
	Path  string
	lines map[string]int // of the keys whose values are in use
}

// Source returns "FILE:LINE" if the file sets a flag, otherwise "".
func (f *File) Source(flag string) string {
	if f == nil || f.lines[flag] == 0 {
		return ""
	}
	return fmt.Sprintf("%s:%d", f.Path, f.lines[flag])
}

// Apply reads a file and sets the flags it names. Flags that are set already keep their values.
// excluded flags cannot be in a file. Errors begin with "FILE:LINE: ".
func Apply(path string, flags *pflag.FlagSet, excluded ...string) (*File, error) {
	text, err := read(path)
	if err != nil {
		return nil, err
	}
	settings, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s:%w", path, err)
	}
	f := &File{Path: path, lines: map[string]int{}}
	given := map[string]bool{}
	flags.VisitAll(func(flag *pflag.Flag) { given[flag.Name] = flag.Changed })
	var errs []error
	for _, s := range settings {
		flag := flags.Lookup(s.key)
		switch {
		case flag == nil || slices.Contains(excluded, s.key):
			err = unknown(s.key, flags, excluded)
		case given[s.key]:
			err = check(flag, s.values) // a wrong value is an error even if it is not in use
		default:
			f.lines[s.key] = s.line
			err = set(flags, flag, s.values)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", path, s.line, err))
		}
	}
	return f, errors.Join(errs...)
}

func read(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s is larger than %d KiB", path, maxFile>>10)
	}
	return b, err
}

// setting is one key of a file with its values. A key without a list has one value.
type setting struct {
	key    string
	line   int
	values []string
}

// parse returns the settings of a file in their order. Errors begin with "LINE: ".
func parse(text []byte) ([]setting, error) {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, syntax(err)
	}
	var out []setting
	for i, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.NullType || doc.Body.Type() == ast.CommentType {
			continue
		}
		if i > 0 {
			return nil, fmt.Errorf("%d: a configuration file has one document", lineOf(doc.Body))
		}
		pairs, err := pairsOf(doc.Body)
		if err != nil {
			return nil, err
		}
		for _, pair := range pairs {
			s, err := settingOf(pair)
			if err != nil {
				return nil, fmt.Errorf("%d: %w", lineOf(pair.Key), err)
			}
			if at := slices.IndexFunc(out, func(o setting) bool { return o.key == s.key }); at >= 0 {
				return nil, fmt.Errorf("%d: %s is set in line %d already", s.line, s.key, out[at].line)
			}
			out = append(out, s)
		}
	}
	return out, nil
}

// syntax turns an error of the parser, "[LINE:COLUMN] text" with an excerpt, into "LINE: text".
func syntax(err error) error {
	text, _, _ := strings.Cut(err.Error(), "\n")
	at, message, ok := strings.Cut(strings.TrimPrefix(text, "["), "] ")
	line, _, _ := strings.Cut(at, ":")
	if _, err := strconv.Atoi(line); !ok || err != nil {
		return fmt.Errorf("1: %s", text)
	}
	return fmt.Errorf("%s: %s", line, message)
}

func pairsOf(n ast.Node) ([]*ast.MappingValueNode, error) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, nil
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, nil
	}
	return nil, fmt.Errorf("%d: want settings, each as KEY: VALUE", lineOf(n))
}

func settingOf(pair *ast.MappingValueNode) (setting, error) {
	key, ok := pair.Key.(*ast.StringNode)
	if !ok {
		return setting{}, fmt.Errorf("%s: want the name of a setting", pair.Key.String())
	}
	s := setting{key: key.Value, line: lineOf(pair.Key)}
	nodes := []ast.Node{pair.Value}
	if list, ok := pair.Value.(*ast.SequenceNode); ok {
		nodes = list.Values
	}
	for _, n := range nodes {
		text, err := scalar(n)
		if err != nil {
			return s, fmt.Errorf("%s: %w", s.key, err)
		}
		s.values = append(s.values, text)
	}
	return s, nil
}

// scalar returns a value as it is written, without quotes: 0x10 and 1_000 mean what they mean as
// arguments.
func scalar(n ast.Node) (string, error) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, nil
	case *ast.LiteralNode:
		return n.Value.Value, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, nil
	case *ast.NullNode:
		return "", errors.New(`the value is missing; write "" for an empty one`)
	case nil:
		return "", errors.New("the value is missing")
	}
	return "", fmt.Errorf("want a value or a list of values, not a %s", strings.ToLower(n.Type().String()))
}

func lineOf(n ast.Node) int {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 1
}

// set gives a flag its values. An empty list is an empty value of a flag that may be repeated.
func set(flags *pflag.FlagSet, flag *pflag.Flag, values []string) error {
	if err := check(flag, values); err != nil {
		return err
	}
	if list, ok := flag.Value.(pflag.SliceValue); ok {
		flag.Changed = true
		return inWords(flag.Name, list.Replace(values))
	}
	return inWords(flag.Name, flags.Set(flag.Name, values[0]))
}

func check(flag *pflag.Flag, values []string) error {
	if _, list := flag.Value.(pflag.SliceValue); !list && len(values) != 1 {
		return fmt.Errorf("%s: want one value, not a list", flag.Name)
	}
	return nil
}

// inWords puts the key before an error of a flag's parser, without pflag's own prefix.
func inWords(key string, err error) error {
	if err == nil {
		return nil
	}
	var number *strconv.NumError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &number):
		err = fmt.Errorf("%q: %w", number.Num, number.Err)
	case errors.As(err, &invalid):
		err = fmt.Errorf("%q: %w", invalid.GetValue(), invalid.Unwrap())
	}
	return fmt.Errorf("%s: %w", key, err)
}

func unknown(key string, flags *pflag.FlagSet, excluded []string) error {
	var known []string
	flags.VisitAll(func(flag *pflag.Flag) {
		if !flag.Hidden && !slices.Contains(excluded, flag.Name) {
			known = append(known, flag.Name)
		}
	})
	if near, close := fieldnames.Nearest(key, known); close {
		return fmt.Errorf("%s: unknown setting; is it %s?", ellipsis.Clip(key, 100), near)
	}
	return fmt.Errorf("%s: unknown setting; settings are the flags of `forkd serve --help`, without the dashes",
		ellipsis.Clip(key, 100))
}
