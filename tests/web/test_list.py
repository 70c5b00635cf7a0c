"""The list: filters in its URL, pages, what is chosen stays chosen, actions on several."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from jobs.states import State
from storage.listing import JobFilter, find_jobs
from tests.factories import job_now, make_job, make_jobs
from tests.waiting import wait_until
from tests.web.conftest import Client, Site, Visitor, wait_for_count

browsing = pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True)


def _titles(html: str) -> list[str]:
    return re.findall(r'class="title"[^>]*>([^<]*)<', html)


def test_filters_find_and_stay_in_the_url(site: Site, client: Client) -> None:
    make_job(site.db, State.FAILED, title="Alpha 100%", piece="general")
    make_job(site.db, State.PAUSED, title="beta_1", piece="ask-first")
    make_job(site.db, State.QUEUED, title="Βeta 2", owner="ann")
    mine, admin = client("local"), client("root", "admin")

    def found(asker: object, **wanted: str) -> set[str]:
        return set(_titles(asker.get("/", params=wanted).text))  # type: ignore[attr-defined]  # a client

    assert found(mine) == {"Alpha 100%", "beta_1"}
    assert found(mine, state="failed") == {"Alpha 100%"}
    assert found(mine, state="open") == {"beta_1"}
    assert found(mine, state="yours") == {"beta_1"}
    assert found(mine, state="ended") == {"Alpha 100%"}
    assert found(mine, piece="ask-first") == {"beta_1"}
    assert found(mine, q="ALPHA") == {"Alpha 100%"}
    assert found(mine, q="%") == {"Alpha 100%"}
    assert found(mine, q="_") == {"beta_1"}
    assert found(mine, q="nothing") == set()
    assert found(mine, owner="ann") == {"Alpha 100%", "beta_1"}  # not theirs to choose
    assert found(admin) == {"Alpha 100%", "beta_1", "Βeta 2"}
    assert found(admin, owner="ann") == {"Βeta 2"}
    html = mine.get("/", params={"q": "100%", "state": "ended"}).text
    assert 'value="100%"' in html
    assert '<option value="ended" selected>' in html


def test_more_filters_by_repository_user_and_time(site: Site, client: Client) -> None:
    make_job(
        site.db, title="shop", repository="shop", user="bo", created_at=1_780_000_000.0
    )  # 2026-05-28 20:26:40 UTC
    make_job(site.db, title="house", repository="house", user="bo", created_at=1_780_003_600.0)
    mine = client("local")

    def found(**wanted: str) -> set[str]:
        return set(_titles(mine.get("/", params=wanted).text))

    assert found(repository="shop") == {"shop"}
    assert found(user="bo") == {"shop", "house"}
    assert found(user="bo", since="2026-05-28T21:00Z") == {"house"}
    assert found(until="2026-05-28T23:00+02:00") == {"shop"}
    assert found(since="soon", until="") == {"shop", "house"}  # no time is no filter
    assert found(since="0001-01-01T00:00") == {"shop", "house"}


def test_a_search_looks_at_so_many_jobs_and_goes_on(
    site: Site, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says where it stopped; following it finds each job once."""
    monkeypatch.setattr("jobs.web.list_routes.LOOKED_AT", 10)
    wanted = [make_job(site.db, id=f"{n:04}", title=f"needle {n}") for n in range(0, 35, 7)]
    for n in range(35):
        if n % 7:
            make_job(site.db, id=f"{n:04}", title="hay")
    seen: list[str] = []
    path, pages = "/?q=needle", 0
    while path:
        html = client("local").get(path).text
        seen += re.findall(r'id="row-([^"]+)"', html)
        following = re.search(r'rel="next" href="([^"]+)"', html)
        path = following[1].replace("&amp;", "&") if following else ""
        pages += 1
    assert sorted(seen) == wanted
    assert pages == 4
    assert "No job found so far" in client("local").get("/?q=nothing").text


def test_states_are_counted(site: Site, client: Client) -> None:
    make_jobs(site.db, 3)
    make_job(site.db, State.FAILED)
    make_job(site.db, State.FAILED, owner="ann")

    def counted(html: str) -> dict[str, int]:
        found = re.findall(r'href="/\?state=(\w+)[^>]*>[^<]*<b>(\d+)</b>', html)
        return {state: int(number) for state, number in found}

    assert counted(client("local").get("/").text) == {"queued": 3, "failed": 1}
    assert counted(client("root", "admin").get("/").text) == {"queued": 3, "failed": 2}
    assert counted(client("root", "admin").get("/?owner=ann").text) == {"failed": 1}


def test_a_group_of_states_is_one_list_in_order(site: Site, client: Client) -> None:
    states = (State.PAUSED, State.WAITING_HUMAN)
    made = [make_job(site.db, states[n % 2], id=f"{n:04}") for n in range(60)]
    make_job(site.db, State.FAILED, id="0050x")
    html = client("local").get("/?state=yours").text
    assert re.findall(r'id="row-([^"]+)"', html) == made[:9:-1]


def test_pages_follow_each_other_without_gap(site: Site, client: Client) -> None:
    made = set(make_jobs(site.db, 120))
    seen: list[str] = []
    path = "/?state=queued"
    while path:
        html = client("local").get(path).text
        seen += re.findall(r'id="row-([^"]+)"', html)
        following = re.search(r'rel="next" href="([^"]+)"', html)
        path = following[1].replace("&amp;", "&") if following else ""
        assert "state=queued" in path or not path
    assert len(seen) == 120
    assert set(seen) == made


def test_rows_that_did_not_change_are_not_sent_again(site: Site, client: Client) -> None:
    job_id = make_job(site.db)
    mine = client("local")
    found = re.search(r'data-rows="(\w+)"', mine.get("/").text)
    assert found
    assert mine.get("/", params={"rows": found[1]}).status_code == 204
    mine.post(f"/jobs/{job_id}/pause")
    changed = mine.get("/", params={"rows": found[1]})
    assert changed.status_code == 200
    assert changed.text.startswith('<div id="rows"')


def test_finding_takes_any_text(site: Site) -> None:
    make_job(site.db, title="50% off_\\ 日本")
    for text, count in {"50%": 1, "%": 1, "\\": 1, "日本": 1, "off-": 0, "\x00": 0, "\ud83d": 0}.items():
        assert len(find_jobs(site.db, JobFilter(title=text), 10)) == count, text


def test_several_at_once_each_for_itself(site: Site, client: Client) -> None:
    queued, done = make_job(site.db), make_job(site.db, State.SUCCEEDED)
    theirs = make_job(site.db, owner="ann")
    mine = client("local")
    answer = mine.post("/bulk", data={"action": "pause", "job": [queued, done, theirs, "none", queued]})
    assert answer.status_code == 200
    assert "1 done" in answer.text
    assert "3 not possible" in answer.text
    assert job_now(site.db, queued)["state"] == State.PAUSED
    assert job_now(site.db, theirs)["state"] == State.QUEUED
    for action, state in (("resume", State.QUEUED), ("cancel", State.CANCELLED), ("retry", State.QUEUED)):
        mine.post("/bulk", data={"action": action, "job": [queued]})
        assert job_now(site.db, queued)["state"] == state
    assert mine.post("/bulk", data={"action": "delete", "job": [queued]}).status_code == 422
    assert (
        mine.post(
            "/bulk", data={"action": "pause", "job": ["x"] * 5 + [str(n) for n in range(201)]}
        ).status_code
        == 422
    )


@browsing
def test_what_is_chosen_stays_chosen_while_the_list_changes(site: Site, visitor: Visitor) -> None:
    first, second = make_job(site.db, title="first"), make_job(site.db, title="second")
    page = visitor.open("/")
    page.get_by_label("Select first", exact=True).check()
    third = make_job(site.db, title="third")
    wait_for_count(page, "tbody tr", 3)
    expect(page.get_by_label("Select first", exact=True)).to_be_checked()
    expect(page.get_by_label("Select third", exact=True)).not_to_be_checked()
    expect(page.get_by_role("toolbar")).to_contain_text("1 selected")
    page.get_by_label("Select all on this page").check()
    page.get_by_role("toolbar").get_by_role("button", name="Pause").click()
    expect(page.locator("#toast")).to_contain_text("3 done")
    expect(page.locator("tbody .badge").first).to_have_text("paused")
    page.get_by_role("toolbar").get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Yes, go on").click()
    states = [State.CANCELLED] * 3
    wait_until(lambda: [job_now(site.db, job)["state"] for job in (first, second, third)] == states)


@browsing
def test_a_filter_is_chosen_and_the_way_back_keeps_it(site: Site, visitor: Visitor) -> None:
    make_job(site.db, State.FAILED, title="broken")
    make_job(site.db, title="fine")
    page = visitor.open("/")
    page.get_by_label("State").select_option("failed")
    page.wait_for_url("**/?state=failed")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name="broken").click()
    page.wait_for_url("**/jobs/*")
    page.go_back()
    page.wait_for_url("**/?state=failed")
    expect(page.get_by_label("State")).to_have_value("failed")
    page.get_by_role("link", name="Clear the filters").click()
    expect(page.locator("tbody tr")).to_have_count(2)


@browsing
def test_an_end_of_the_session_leads_to_the_login(site: Site, visitor: Visitor) -> None:
    visitor.expected = ("Failed to load resource", "Response Status Error Code 401")
    job_id = make_job(site.db)
    page = visitor.open(f"/jobs/{job_id}")
    other = visitor.open("/")
    other.get_by_role("button", name="Log out").click()
    other.wait_for_url("**/login")
    expect(page.get_by_label("One-time code")).to_be_visible()
    page.get_by_label("One-time code").fill("AAAAA-AAAAA-AAAAA-AAAAA")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("This code is not valid")
    page.get_by_label("One-time code").fill(site.code())
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("#head")).to_be_visible()  # where one was
