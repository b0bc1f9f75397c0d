package support

import (
	"encoding/base64"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Removed replaces a secret.
const Removed = "[removed]"

// shortest is the length of a known secret. Shorter values would also match ordinary words.
const shortest = 6

// Redactor removes secrets from texts: known values, and values with the form of a secret.
type Redactor struct {
	mu    sync.Mutex // guards known
	known []string
}

// Learn adds values to remove. It ignores values of less than six characters.
func (r *Redactor) Learn(values ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range values {
		v = strings.TrimSpace(v)
		if len(v) < shortest {
			continue
		}
		quoted := strconv.Quote(v)
		for _, form := range []string{v, quoted[1 : len(quoted)-1], url.QueryEscape(v), url.PathEscape(v),
			base64.StdEncoding.EncodeToString([]byte(v)), base64.URLEncoding.EncodeToString([]byte(v)),
			base64.RawStdEncoding.EncodeToString([]byte(v))} {
			if !slices.Contains(r.known, form) {
				r.known = append(r.known, form)
			}
		}
	}
}

// replacer replaces the known values. Longer values come first, since they may contain shorter ones.
func (r *Redactor) replacer() *strings.Replacer {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := slices.Clone(r.known)
	slices.SortFunc(known, func(a, b string) int { return len(b) - len(a) })
	pairs := make([]string, 0, 2*len(known))
	for _, v := range known {
		pairs = append(pairs, v, Removed)
	}
	return strings.NewReplacer(pairs...)
}

// rule removes values of one form.
type rule struct {
	// marks are lowercase texts. A text without any of them has no match. They save the time of the
	// expression.
	marks   []string
	match   *regexp.Regexp
	replace string
	// keep, if set, decides about a match. It receives the groups.
	keep func(groups []string) bool
}

// secretName matches the end of names with secret values. nameMarks are its marks.
const secretName = `(?:tokens?|secrets?|passw(?:or)?ds?|passwd|passphrase|api[_-]?keys?|access[_-]?keys?|` +
	`private[_-]?keys?|client[_-]?keys?|credentials?|signature|authorization|cookie)`

func nameMarks() []string {
	return []string{"token", "secret", "passw", "passphrase", "key", "credential", "signature", "authorization", "cookie"}
}

// value matches a value after = or a colon: quoted, also in a quoted text, or a word.
const value = `(?:\\"(?:[^"\\]|\\[^"])*\\"|"(?:[^"\\]|\\.)*"|'[^'\n]*'|[^\s,;&"'}\])]+)`

// wholeRules returns the rules for forms of several lines.
var wholeRules = sync.OnceValue(func() []rule {
	re := regexp.MustCompile
	return []rule{
		{match: re(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`),
			replace: Removed},
		// A log may be cut inside a key.
		{marks: []string{"private key-----"}, replace: Removed,
			match: re(`(?:[A-Za-z0-9+/=]+\s*\n)*-----END [A-Z0-9 ]*PRIVATE KEY-----`)},
		// The arguments of a program, as JSON.
		{match: re(`("--[A-Za-z0-9-]*(?i:` + secretName + `)",\s*")((?:[^"\\]|\\.)*)`), replace: `${1}` + Removed},
	}
})

// lineRules returns the rules for the forms in a line, in order.
var lineRules = sync.OnceValue(func() []rule {
	re := regexp.MustCompile
	gone := func(v string) bool { return strings.HasPrefix(v, Removed[:len(Removed)-1]) }
	return []rule{
		{marks: []string{"authorization", "cookie"},
			match: re(`(?i)\b((?:proxy-)?authorization|(?:set-)?cookie)(\\?["']?\s*[:=]\s*)` +
				`(?:\\?"(?:[^"\\]|\\.)*"|[^\r\n"]*)`),
			replace: `${1}${2}` + Removed},
		{marks: []string{"bearer", "basic"}, replace: `${1} ` + Removed,
			match: re(`(?i)\b(bearer|basic)(?:\s+|%20)["']?[A-Za-z0-9._~+/=-]{6,}`)},
		{marks: []string{"e2b_"}, match: re(`\be2b_[A-Za-z0-9]{6,}`), replace: Removed},
		{marks: []string{"gh", "sk-", "xox", "akia", "asia", "glpat-", "hf_"}, replace: Removed,
			match: re(`\b(?:gh[pousr]_|github_pat_|sk-|xox[a-z]-|AKIA|ASIA|glpat-|hf_)[A-Za-z0-9_-]{12,}`)},
		{marks: []string{"eyj"}, replace: Removed,
			match: re(`\beyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?`)},
		{marks: []string{"@"}, match: re(`([A-Za-z][A-Za-z0-9+.-]*://)[^\s"'<>/]*@`), replace: `${1}` + Removed + `@`},
		{marks: []string{"@"}, replace: `${1}` + Removed + `@`,
			match: re(`([A-Za-z][A-Za-z0-9+.-]*://)[^\s"'<>@:/]*:[^\s"'<>]*@`)},
		{marks: []string{"@"}, replace: Removed + `@${3}`,
			match: re(`([^\s"'<>@:/=,;]+):([^\s"'<>@:/][^\s"'<>@:]*)@([A-Za-z0-9\[][A-Za-z0-9.:-]*)`),
			keep:  func(g []string) bool { return strings.HasPrefix(g[3], "sha256:") }},
		{marks: []string{"--"}, replace: `${1}` + Removed,
			match: re(`(?i)(--[a-z0-9-]*` + secretName + `(?:[= ]|\\",\s*\\"))([^\s"\\]+)`),
			keep:  func(g []string) bool { return gone(g[2]) }},
		{marks: nameMarks(), replace: `${1}${2}` + Removed,
			match: re(`(?i)([A-Za-z0-9_.-]*` + secretName + `[A-Za-z0-9_.-]*)(\\?["']?\s*[:=]\s*)(` + value + `)`),
			keep:  func(g []string) bool { return namesFile(g[1]) || gone(g[3]) }},
		{marks: []string{"_key=", "_pass=", "_pwd=", "_auth="}, replace: `${1}=` + Removed,
			match: re(`\b([A-Z][A-Z0-9_]*_(?:KEY|PASS|PWD|AUTH))=` + value)},
		{marks: []string{"is \""}, replace: `${1} is ` + Removed,
			match: re(`(?i)\b(password|passphrase|secret|token|key) is "(?:[^"\\]|\\.)*"`)},
		{marks: []string{"env", "arg", "cmd"}, replace: `${1}=` + Removed,
			match: re(`(?i)\b(envs?|environ(?:ment)?|args|argv|cmdline|cmd)=` + `(?:map\[[^\]]*\]|\[[^\]]*\]|` + value + `)`)},
		// Output of guests in errors: after the first line, and of a warm-up.
		{marks: []string{`\n`}, replace: `${1} ` + Removed + `"`,
			match: re(`(\b(?:err|error|msg)="(?:[^"\\\n]|\\[^n\n])*)\\n(?:[^"\\]|\\.)*"`)},
		{marks: []string{"of step ", "start the service: "}, replace: `${1}` + Removed,
			match: re(`(of step \d+: |start the service: )[^"\n]*`)},
	}
})

// digest matches a SHA-256, which a daemon's token resembles, with the name of a digest before it.
var digest = sync.OnceValue(func() rule {
	return rule{match: regexp.MustCompile(`(?i)((?:sha256|digest|hash|fingerprint|head|layer|manifest|chain|commit)` +
		`[a-z0-9_]*\\?["']?[:= ]{1,4}\\?["']?(?:[0-9]+:)?)?\b[0-9a-f]{64}\b`), replace: Removed,
		keep: func(g []string) bool { return g[1] != "" }}
})

// Text returns a text without secrets.
func (r *Redactor) Text(text string) string { return clean(r.replacer(), text) }

func clean(known *strings.Replacer, text string) string {
	text = known.Replace(strings.ToValidUTF8(text, "?"))
	lower := strings.ToLower(text)
	for _, rule := range wholeRules() {
		text = rule.apply(lower, text)
	}
	var out strings.Builder
	out.Grow(len(text))
	for line := range strings.Lines(text) {
		lower := strings.ToLower(line)
		for _, rule := range lineRules() {
			line = rule.apply(lower, line)
		}
		if longHex(line) {
			line = digest().apply(lower, line)
		}
		out.WriteString(line)
	}
	return out.String()
}

// longHex reports whether a text has 64 hexadecimal digits in a row.
func longHex(text string) bool {
	n := 0
	for _, c := range []byte(text) {
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' {
			if n++; n == 64 {
				return true
			}
			continue
		}
		n = 0
	}
	return false
}

// apply removes the values from a text. lower is the text, or an earlier form of it, in lowercase.
func (r rule) apply(lower, text string) string {
	if len(r.marks) > 0 && !slices.ContainsFunc(r.marks, func(m string) bool { return strings.Contains(lower, m) }) {
		return text
	}
	if r.keep == nil {
		return r.match.ReplaceAllString(text, r.replace)
	}
	var out strings.Builder
	last := 0
	for _, at := range r.match.FindAllStringSubmatchIndex(text, -1) {
		if r.keep(groupsOf(text, at)) {
			continue
		}
		out.WriteString(text[last:at[0]])
		out.Write(r.match.ExpandString(nil, r.replace, text, at))
		last = at[1]
	}
	return out.String() + text[last:]
}

func groupsOf(text string, at []int) []string {
	groups := make([]string, len(at)/2)
	for i := range groups {
		if at[2*i] >= 0 {
			groups[i] = text[at[2*i]:at[2*i+1]]
		}
	}
	return groups
}

// namesFile reports whether the value of a name is a path or a word, such as that of --token-file.
func namesFile(name string) bool {
	name = strings.ToLower(name)
	for _, end := range []string{"file", "path", "dir"} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}
