//! Source files as the tidy test reads them: without comments and strings, tests marked, paths
//! spelled out.

use std::ops::RangeInclusive;

/// A file of Rust code.
#[derive(Debug)]
pub(crate) struct Source {
    /// Its path from the top of the project, with `/`.
    pub(crate) path: String,
    /// The text as it is.
    pub(crate) text: String,
    /// Line by line: code only, and whether it belongs to a test.
    pub(crate) lines: Vec<Line>,
}

/// A line of code.
#[derive(Debug)]
pub(crate) struct Line {
    /// The line with comments taken out and the contents of strings blanked.
    pub(crate) code: String,
    /// Whether it is under `#[cfg(test)]`, in a module declared so, or in the folder of tests.
    pub(crate) in_test: bool,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let code = strip(text);
        let only_tests = path.starts_with("tests/");
        let mut lines: Vec<Line> = code
            .lines()
            .map(|line| Line {
                code: line.to_owned(),
                in_test: only_tests,
            })
            .collect();
        for start in 0..lines.len() {
            if lines[start].code.trim_start().starts_with("#[cfg(test)]") {
                let end = item_end(&lines, start + 1);
                for line in &mut lines[start..=end] {
                    line.in_test = true;
                }
            }
        }
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            lines,
        }
    }

    /// The modules in files of their own that exist in tests only, as paths without an ending.
    pub(crate) fn test_modules(&self) -> Vec<String> {
        let folder = match self.path.rsplit_once('/') {
            Some((folder, "mod.rs" | "lib.rs" | "main.rs")) => folder,
            _ => self.path.trim_end_matches(".rs"),
        };
        let declared = self.lines.iter().filter(|line| line.in_test);
        let names = declared.filter_map(|line| {
            let (_, name) = line.code.split_once("mod ")?;
            name.trim_end().strip_suffix(';')
        });
        names.map(|name| format!("{folder}/{name}")).collect()
    }

    /// Takes note that the whole file exists in tests only.
    pub(crate) fn mark_as_test(&mut self) {
        for line in &mut self.lines {
            line.in_test = true;
        }
    }

    /// Lines outside tests, numbered from 1.
    pub(crate) fn shipped(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.lines.iter().enumerate();
        let shipped = lines.filter(|(_, line)| !line.in_test);
        shipped.map(|(index, line)| (index + 1, line.code.as_str()))
    }

    /// The functions with a body: name, and the lines from `fn` to the closing brace.
    pub(crate) fn functions(&self) -> Vec<(String, RangeInclusive<usize>)> {
        let mut functions = Vec::new();
        for (index, line) in self.lines.iter().enumerate() {
            if let Some(name) = function_name(&line.code) {
                let end = item_end(&self.lines, index);
                functions.push((name.to_owned(), index + 1..=end + 1));
            }
        }
        functions
    }

    /// The module of the file: `["proto", "resp"]` for `src/proto/resp/mod.rs`.
    pub(crate) fn module(&self) -> Vec<&str> {
        let path = self.path.trim_start_matches("src/").trim_end_matches(".rs");
        let mut module: Vec<&str> = path.split('/').collect();
        if matches!(module.last(), Some(&("mod" | "lib"))) {
            module.pop();
        }
        module
    }

    /// All paths outside tests with the number of their line: `use` trees multiplied out,
    /// `super` and `self` resolved.
    pub(crate) fn paths(&self) -> Vec<(usize, String)> {
        let mut code = String::new();
        for line in &self.lines {
            code.push_str(if line.in_test { "" } else { &line.code });
            code.push('\n');
        }
        let mut paths = Vec::new();
        let mut rest = code.as_str();
        while let Some(start) = rest.find("::") {
            let prefix = rest[..start].trim_end_matches(is_word).len();
            let (tree, end) = take_tree(&rest[prefix..]);
            let number = code.len() - rest.len() + prefix;
            let number = code[..number].matches('\n').count() + 1;
            paths.extend(tree.into_iter().map(|path| (number, self.resolve(&path))));
            rest = &rest[prefix + end.max(start + 2 - prefix)..];
        }
        paths
    }

    fn resolve(&self, path: &str) -> String {
        let mut module = self.module();
        let mut words = path.split("::").peekable();
        match words.peek() {
            Some(&"self") => {
                words.next();
            }
            Some(&"super") => {
                while words.next_if_eq(&"super").is_some() {
                    module.pop();
                }
            }
            _ => return path.trim_start_matches("::").to_owned(),
        }
        let words: Vec<&str> = ["crate"].into_iter().chain(module).chain(words).collect();
        words.join("::")
    }
}

/// Reads `a::b::{c, d::{e}}` at the start of `text`: all paths in it, and its length.
fn take_tree(text: &str) -> (Vec<String>, usize) {
    let word = text.len() - text.trim_start_matches(is_word).len();
    let name = &text[..word];
    let Some(tail) = text[word..].strip_prefix("::") else {
        return (vec![name.to_owned()], word);
    };
    let mut end = word + 2;
    let Some(mut inner) = tail.strip_prefix('{') else {
        let (paths, length) = take_tree(tail);
        let paths = paths.iter().map(|path| format!("{name}::{path}"));
        return (paths.collect(), end + length);
    };
    let mut paths = Vec::new();
    loop {
        inner = inner.trim_start_matches(|c: char| c == ',' || c.is_whitespace());
        end = text.len() - inner.len();
        if inner.is_empty() || inner.starts_with('}') {
            return (paths, (end + 1).min(text.len()));
        }
        let (parts, length) = take_tree(inner);
        paths.extend(parts.iter().map(|path| format!("{name}::{path}")));
        // Renames and globs are passed over.
        inner = inner[length..].trim_start_matches(|letter| !matches!(letter, ',' | '}'));
    }
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// The name of the function whose signature begins on this line.
fn function_name(code: &str) -> Option<&str> {
    let start = code.find("fn ")?;
    if code[..start].ends_with(is_word) {
        return None;
    }
    let name = &code[start + 3..];
    let end = name.find(|letter| !is_word(letter))?;
    (end > 0).then(|| &name[..end])
}

/// The last line of the item that begins at line `start`: that of its closing brace, or of the
/// semicolon of an item without a body.
fn item_end(lines: &[Line], start: usize) -> usize {
    let (mut braces, mut others) = (0, 0);
    for (index, line) in lines.iter().enumerate().skip(start) {
        for letter in line.code.chars() {
            match letter {
                '{' => braces += 1,
                '}' => {
                    braces -= 1;
                    if braces <= 0 {
                        return index;
                    }
                }
                '(' | '[' => others += 1,
                ')' | ']' => others -= 1,
                ';' if braces == 0 && others == 0 => return index,
                _ => {}
            }
        }
    }
    lines.len() - 1
}

/// Takes comments out and blanks the contents of strings and characters; lines stay lines.
fn strip(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let (length, keep) = match letter {
            '/' if rest.starts_with("//") => (rest.find('\n').unwrap_or(rest.len()), 0),
            '/' if rest.starts_with("/*") => (comment_length(rest), 0),
            '"' => (1 + string_length(&rest[1..]), 1),
            'r' if !code.ends_with(is_word) || code.ends_with('b') => {
                raw_string_length(rest).map_or((1, 1), |length| (length, 1))
            }
            '\'' => (character_length(rest), 1),
            _ => (letter.len_utf8(), letter.len_utf8()),
        };
        code.push_str(&rest[..keep]);
        if keep == 1 && length > 1 {
            // Both ends of a string are kept, so that it still separates words.
            code.push(letter);
        }
        code.extend(rest[keep..length].chars().filter(|&letter| letter == '\n'));
        rest = &rest[length..];
    }
    code
}

/// The length of a block comment, which may contain others.
fn comment_length(text: &str) -> usize {
    let mut depth = 0;
    for (index, pair) in text.as_bytes().windows(2).enumerate() {
        match pair {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return index + 2;
        }
    }
    text.len()
}

/// The length of a string after its opening quote, the closing quote included.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return index + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of `r#"…"#`, if that is what the text begins with.
fn raw_string_length(text: &str) -> Option<usize> {
    let hashes = text[1..].bytes().take_while(|&byte| byte == b'#').count();
    let body = text[1 + hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let end = body.find(&close)? + close.len();
    Some(1 + hashes + 1 + end)
}

/// The length of a character literal; 1 for the quote of a lifetime.
fn character_length(text: &str) -> usize {
    if let Some(escape) = text.strip_prefix("'\\") {
        let end = escape.char_indices().skip(1).find(|(_, c)| *c == '\'');
        return end.map_or(1, |(index, _)| index + 3);
    }
    let mut letters = text.char_indices().skip(2);
    match letters.next() {
        Some((index, '\'')) => index + 1,
        _ => 1,
    }
}
