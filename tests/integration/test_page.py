"""The page at / in a headless browser (Debian: chromium, chromium-driver, python3-selenium), with a running node."""

import http.client
import os
import pathlib
import shutil
import signal

import pytest

webdriver = pytest.importorskip("selenium.webdriver")
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

import pypi
from node import REPO, Node

if not shutil.which("chromium") or not shutil.which("chromedriver"):
    pytest.skip("chromium and chromium-driver are not installed", allow_module_level=True)


class Page:
    def __init__(self, driver, address):
        self.driver, self.address = driver, address
        driver.get(f"{address}/")
        self.until(lambda: "tokens of context" in self.find("#model").text)

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def until(self, condition):
        return WebDriverWait(self.driver, 60, poll_frequency=0.1).until(lambda _: condition())

    def type(self, text):
        self.find("#prompt").send_keys(text, Keys.ENTER)

    def limit_answers(self, tokens):
        """The model of `page` never stops by itself."""
        if not self.find("#settings").get_attribute("open"):
            self.find("#settings summary").click()
        box = self.find("#set-max_tokens")
        box.clear()
        box.send_keys(str(tokens))

    def wait_for_answer(self, answers):
        self.until(lambda: self.find("#status").text == "The answer is complete.")
        self.until(lambda: len(self.all(".message.assistant .figures")) == answers)

    def answers(self):
        return [answer.text for answer in self.all(".message.assistant > .markdown")]


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1200,800"):
        options.add_argument(flag)
    # Everything but this machine is out of reach: the page must need nothing from elsewhere.
    options.add_argument("--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options)
    yield driver
    driver.quit()


def opened(node, browser):
    """A page without a history. Nothing may be wrong on the console until its test has ended."""
    page = Page(browser, f"http://127.0.0.1:{node.http_port}")
    browser.execute_script("localStorage.clear()")
    page = Page(browser, f"http://127.0.0.1:{node.http_port}")
    browser.get_log("browser")
    yield page
    assert not [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


@pytest.fixture
def page(node, browser):
    """With a model that never stops by itself: there is time to stop it."""
    yield from opened(node, browser)


@pytest.fixture
def demo_page(api, bin_dir, browser):
    with Node(api, bin_dir, REPO / "deploy" / "models" / "demo") as node:
        yield from opened(node, browser)


def screenshot(page, name):
    """Kept where MOESTRO_SCREENSHOTS says: the README's come from here."""
    folder = os.environ.get("MOESTRO_SCREENSHOTS")
    if folder:
        page.driver.save_screenshot(str(pathlib.Path(folder) / name))


def test_three_turns_are_kept_over_a_reload(demo_page):
    page = demo_page
    for turn, words in enumerate(["Sort [5, 2, 9].", "Now reverse it.", "What is the first one?"], 1):
        page.type(words)
        page.wait_for_answer(turn)
    answers = page.answers()
    assert answers == ["[2, 5, 9]", "[9, 5, 2]", "9"]
    figures = page.find(".message.assistant .figures").text
    assert "first token" in figures and "path chunked" in figures
    screenshot(page, "page-light.png")
    again = Page(page.driver, page.address)
    assert again.answers() == answers
    Select(again.find("#theme")).select_by_value("dark")
    screenshot(again, "page-dark.png")
    dark = again.driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    Select(again.find("#theme")).select_by_value("light")
    assert again.driver.execute_script("return getComputedStyle(document.body).backgroundColor") != dark


def test_stop_and_resend(page, node):
    page.limit_answers(20)
    page.find("#set-template").send_keys("{")
    page.type("Sort [5, 2, 9].")
    assert "chat template" in page.find("#status").text  # not sent
    page.find("#set-template").send_keys(Keys.BACKSPACE)
    page.find("#prompt").send_keys(Keys.ENTER)
    page.wait_for_answer(1)
    first = page.answers()
    os.kill(node.pid("decode"), signal.SIGSTOP)  # the answer ends in no other way
    try:
        page.all(".message.user .actions button")[1].click()  # Resend
        page.until(lambda: page.find("#status").text != "The answer is complete.")
        page.find("body").send_keys(Keys.ESCAPE)
        page.until(lambda: page.find("#status").text == "Stopped.")
    finally:
        os.kill(node.pid("decode"), signal.SIGCONT)
    page.until(lambda: len(page.all(".message.assistant .actions")) == 1)
    page.limit_answers(20)
    page.all(".message.assistant .actions button")[1].click()  # Answer again
    page.wait_for_answer(1)
    assert len(page.all(".message")) == 2
    assert all(page.answers()) and all(first)


def test_edit_replaces_what_follows(page):
    page.limit_answers(20)
    page.type("Sort [5, 2, 9].")
    page.wait_for_answer(1)
    page.type("Now reverse it.")
    page.wait_for_answer(2)
    page.find(".message.user .actions button").click()
    box = page.find(".message.user textarea")
    box.clear()
    box.send_keys("Sort [3, 1].", Keys.CONTROL, Keys.ENTER)
    page.until(lambda: len(page.all(".message")) == 2)
    page.wait_for_answer(1)
    assert page.find(".message.user .plain").text == "Sort [3, 1]."


def test_every_control_has_a_name_and_ids_are_unique(page):
    nameless = page.driver.execute_script("""
        return [...document.querySelectorAll('button, input, select, textarea, summary, [tabindex]')]
            .filter((e) => !(e.textContent.trim() || e.labels?.length || e.getAttribute('aria-label')))
            .map((e) => e.outerHTML);""")
    assert nameless == []
    doubled = page.driver.execute_script("""
        const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
        return ids.filter((id, i) => ids.indexOf(id) !== i);""")
    assert doubled == []


def serious_findings(page):
    """What axe-core holds against the page as it is now."""
    if not page.driver.execute_script("return typeof axe === 'object'"):
        library = pathlib.Path(pypi.load("axe_core_python").__file__).parent / "axe.min.js"
        page.driver.execute_script(library.read_text())
    found = page.driver.execute_async_script("""
        const done = arguments[0];
        axe.run().then((result) => done(result.violations), (error) => done(String(error)));""")
    assert isinstance(found, list), found
    return [f"{rule['id']} ({rule['impact']}): {rule['help']}: {node['html']}"
            for rule in found if rule["impact"] in ("serious", "critical") for node in rule["nodes"]]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(demo_page, theme):
    page = demo_page
    page.driver.set_script_timeout(60)
    Select(page.find("#theme")).select_by_value(theme)
    page.type("Sort [5, 2, 9].")
    page.wait_for_answer(1)
    page.find("#settings summary").click()
    assert serious_findings(page) == []
    page.find(".message.user .actions button").click()  # Edit
    assert serious_findings(page) == []
    page.find("#tab-dashboard").click()
    page.until(lambda: len(page.all(".chart")) == 6)
    assert serious_findings(page) == []


def test_dashboard_by_keyboard(page):
    page.find("#tab-chat").send_keys(Keys.ARROW_RIGHT)
    assert page.driver.switch_to.active_element.get_attribute("id") == "tab-dashboard"
    page.until(lambda: len(page.all(".chart")) == 6)
    page.until(lambda: page.all(".chart dd")[2].text not in ("", "–") or "cannot be read" in page.find("#dashboard-note").text)
    assert "cannot be read" not in page.find("#dashboard-note").text


MARKDOWN = """\
# Title <b>bold</b>

<script>alert(1)</script> <img src=x onerror=alert(1)> [x](javascript:alert(1)) [y](https://example.org/a_(b)) `<i>`

* one
* **two** and *three*
  1. deep

```html
<p>&amp;</p>
```
| a | b |
|---|:-:|
| `1` | 2 |
"""


def test_markdown_never_becomes_html(page):
    page.driver.set_script_timeout(30)
    cut = """
        const [text, step, done] = arguments;
        import('/page/markdown.js').then(({MarkdownView}) => {
          const parent = document.createElement('div');
          const view = new MarkdownView(parent);
          for (let i = step; i < text.length; i += step) view.update(text.slice(0, i));
          view.update(text);
          done([parent.innerHTML, parent.querySelectorAll('script, img, i, b').length,
                [...parent.querySelectorAll('a')].map((a) => a.href)]);
        }, (error) => done(String(error)));"""
    whole = page.driver.execute_async_script(cut, MARKDOWN, 10000)
    html, forbidden, links = whole
    assert forbidden == 0 and links == ["https://example.org/a_(b)"]
    for tag in ("<h3>", "<li>", "<strong>two</strong>", "<em>three</em>", "<ol>", "<pre", "<table>", "<code>1</code>"):
        assert tag in html, html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert page.driver.execute_async_script(cut, MARKDOWN, 1) == whole


def test_a_long_line_is_only_text(page):
    """Rules that take the square of a line's length would freeze the page: minutes, for lines such as these."""
    page.driver.set_script_timeout(30)
    shown = page.driver.execute_async_script("""
        const [lines, done] = arguments;
        import('/page/markdown.js').then(({MarkdownView}) => {
          const parent = document.createElement('div');
          for (const line of lines) new MarkdownView(parent).update(line);
          done(parent.querySelectorAll('h3, table, pre, hr').length);
        }, (error) => done(String(error)));""", [
            mark + " " * 200000 + end for mark, end in (("# ", "x"), ("a|b\n", "x"), ("-", "x"), ("```", "`"), ("", "x"))])
    assert shown == 0


def test_files_have_a_strict_policy(node):
    connection = http.client.HTTPConnection("127.0.0.1", node.http_port)
    for path, kind in (("/", "text/html"), ("/page/main.js", "text/javascript"), ("/page/style.css", "text/css")):
        connection.request("GET", path)
        reply = connection.getresponse()
        reply.read()
        assert reply.status == 200 and reply.getheader("Content-Type").startswith(kind)
        assert "default-src 'none'" in reply.getheader("Content-Security-Policy")
    connection.request("GET", "/page/../main.cc")
    reply = connection.getresponse()
    reply.read()
    assert reply.status == 404
