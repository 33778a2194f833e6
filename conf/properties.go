package conf

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// This file reads and edits Java's property files. It is written out here because the same text arrives in update-config requests from
// anyone: github.com/magiconair/properties takes a stack frame for every blank character and leaves a goroutine behind for some inputs.

// entry is one key with its value and the lines that hold it.
type entry struct {
	key, value  string
	first, last int // indexes of lines, both included
}

// xmlComment is how some of RocketMQ's own samples open, although they are property files. It begins a line, so that no value can make one.
var xmlComment = regexp.MustCompile(`(?ms)^[ \t]*<!--.*?-->`)

const byteOrderMark = "\uFEFF"

// blankComments turns XML comments and a byte order mark into blanks and keeps the lines.
func blankComments(b []byte) []byte {
	if bytes.HasPrefix(b, []byte(byteOrderMark)) {
		b = append([]byte("   "), b[len(byteOrderMark):]...)
	}
	return xmlComment.ReplaceAllFunc(b, func(c []byte) []byte {
		blank := bytes.Repeat([]byte{' '}, len(c))
		for i := range c {
			if c[i] == '\n' || c[i] == '\r' {
				blank[i] = c[i]
			}
		}
		return blank
	})
}

// splitLines cuts text behind each \n, \r or \r\n. Lines keep their ends.
func splitLines(text string) (lines []string) {
	for text != "" {
		i := strings.IndexAny(text, "\r\n")
		switch {
		case i < 0:
			i = len(text)
		case strings.HasPrefix(text[i:], "\r\n"):
			i += 2
		default:
			i++
		}
		lines = append(lines, text[:i])
		text = text[i:]
	}
	return lines
}

// lineEnd returns the end of a line, empty for a last one without.
func lineEnd(line string) string { return line[len(strings.TrimRight(line, "\r\n")):] }

const blanks = " \t\f"

// parse reads lines without XML comments, in their order. The error names the line of a malformed escape.
func parse(lines []string) (all []entry, err error) {
	for i := 0; i < len(lines); i++ {
		text := strings.TrimLeft(strings.TrimRight(lines[i], "\r\n"), blanks)
		if text == "" || text[0] == '#' || text[0] == '!' {
			continue
		}
		e := entry{first: i}
		if continues(text) { // rare, so that a file of long entries costs no quadratic time
			var b strings.Builder
			for continues(text) {
				b.WriteString(text[:len(text)-1])
				if text = ""; i+1 < len(lines) {
					i++
					text = strings.TrimLeft(strings.TrimRight(lines[i], "\r\n"), blanks)
				}
			}
			b.WriteString(text)
			text = b.String()
		}
		e.last = i
		key, value := cutKey(text)
		if e.key, err = unescape(key); err == nil {
			e.value, err = unescape(value)
		}
		if err != nil {
			return nil, fmt.Errorf("parse properties: line %d: %w", e.first+1, err)
		}
		all = append(all, e)
	}
	return all, nil
}

// continues tells whether a line ends with an odd number of backslashes.
func continues(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1
}

// cutKey splits a logical line at the first =, : or blank that is not escaped.
func cutKey(line string) (key, value string) {
	i := 0
	for i < len(line) && !strings.ContainsRune("=:"+blanks, rune(line[i])) {
		if line[i] == '\\' {
			i++
		}
		i++
	}
	i = min(i, len(line))
	key, value = line[:i], strings.TrimLeft(line[i:], blanks)
	if value != "" && (value[0] == '=' || value[0] == ':') {
		value = strings.TrimLeft(value[1:], blanks)
	}
	return key, value
}

// unescape undoes Java's escapes.
func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b = append(b, s[i])
			continue
		}
		if i++; i == len(s) {
			break
		}
		switch s[i] {
		case 't':
			b = append(b, '\t')
		case 'n':
			b = append(b, '\n')
		case 'r':
			b = append(b, '\r')
		case 'f':
			b = append(b, '\f')
		case 'u':
			r, err := unit(s[i+1:])
			if err != nil {
				return "", err
			}
			i += 4
			if utf16.IsSurrogate(r) && strings.HasPrefix(s[i+1:], `\u`) {
				if low, err := unit(s[i+3:]); err == nil && utf16.DecodeRune(r, low) != utf8.RuneError {
					r, i = utf16.DecodeRune(r, low), i+6
				}
			}
			b = utf8.AppendRune(b, r)
		default:
			b = append(b, s[i])
		}
	}
	return string(b), nil
}

// unit reads the four digits of a \u escape.
func unit(s string) (rune, error) {
	if len(s) >= 4 {
		if n, err := strconv.ParseUint(s[:4], 16, 16); err == nil {
			return rune(n), nil
		}
	}
	return 0, fmt.Errorf(`\u%.4q: four hexadecimal digits are needed`, s)
}

// readProperties reads a whole file.
func readProperties(b []byte) ([]entry, error) { return parse(splitLines(string(blankComments(b)))) }

// MaxUpdate is the longest text, in bytes, that ParseProperties reads.
const MaxUpdate = 1 << 20

// ParseProperties reads the body of an update-config request: key=value lines with Java's escapes. Of a repeated key the last counts.
// Errors say what is malformed.
func ParseProperties(b []byte) (map[string]string, error) {
	if len(b) > MaxUpdate {
		return nil, fmt.Errorf("parse properties: %d bytes are more than %d", len(b), MaxUpdate)
	}
	all, err := readProperties(b)
	if err != nil {
		return nil, err
	}
	m := make(map[string]string, len(all))
	for _, e := range all {
		m[e.key] = e.value
	}
	return m, nil
}

// editProperties changes keys of a property file and leaves every other line as it is. The last line of a repeated key is the one that
// counts, so all are changed, in whatever case they are written. New keys go to the end, sorted. It fails for a file that cannot
// be read, and for a value that it could not be read from again.
func editProperties(old []byte, changes map[string]string) ([]byte, error) {
	names := map[string]string{} // by lower case
	for key := range changes {
		names[strings.ToLower(key)] = key
	}
	lines, read := splitLines(string(old)), splitLines(string(blankComments(old)))
	all, err := parse(read)
	if err != nil {
		return nil, err
	}
	end := "\n"
	if len(lines) > 0 && lineEnd(lines[0]) != "" {
		end = lineEnd(lines[0])
	}
	var out bytes.Buffer
	done := map[string]bool{}
	next, open := 0, false // open: the last line ends with a backslash
	for _, e := range all {
		key, ok := names[strings.ToLower(e.key)]
		if open = !ok && continues(strings.TrimRight(read[e.last], "\r\n")); !ok {
			continue
		}
		for ; next < e.first; next++ {
			out.WriteString(lines[next])
		}
		out.WriteString(commentPart(lines[e.first], read[e.first]) + key + "=" + escape(changes[key]) + end)
		for next++; next <= e.last; next++ {
			out.WriteString(commentPart(lines[next], read[next]))
		}
		done[key] = true
	}
	for ; next < len(lines); next++ {
		out.WriteString(lines[next])
	}
	if n := out.Len(); n > 0 && len(done) < len(changes) {
		if c := out.Bytes()[n-1]; c != '\n' && c != '\r' {
			out.WriteString(end)
		}
		if open {
			out.WriteString(end) // an empty line, lest the last entry take in the first new one
		}
	}
	var fresh []string
	for key, value := range changes {
		if !done[key] {
			fresh = append(fresh, key+"="+escape(value)+end)
		}
	}
	slices.Sort(fresh)
	for _, line := range fresh {
		out.WriteString(line)
	}
	return out.Bytes(), holds(out.Bytes(), changes)
}

// holds tells whether a reader of the text finds the values in it. It does not if, say, a value ends an XML comment that was open.
func holds(text []byte, values map[string]string) error {
	all, err := readProperties(text)
	if err != nil {
		return err
	}
	found := map[string]string{}
	for _, e := range all {
		found[strings.ToLower(e.key)] = e.value
	}
	for key, value := range values {
		if got, ok := found[strings.ToLower(key)]; !ok || strings.TrimSpace(got) != strings.TrimSpace(value) {
			return fmt.Errorf("key %s: the file cannot hold the value %q", key, value)
		}
	}
	return nil
}

// commentPart returns the part of a line up to the end of the XML comment in it; empty without one. read is the line with the comment blanked.
func commentPart(line, read string) string {
	for i := len(line); i > 0; i-- {
		if line[i-1] != read[i-1] {
			return line[:i]
		}
	}
	return ""
}

// escape keeps a value on its line and its leading blanks.
func escape(value string) string {
	value = strings.ReplaceAll(value, `\`, `\\`)
	if strings.HasPrefix(value, " ") {
		value = `\` + value
	}
	return value
}
