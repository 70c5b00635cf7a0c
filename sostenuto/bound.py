"""How one description of a method serves both clients: called on one it waits, on the other it is awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import update_wrapper
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from sostenuto.flows import Flow

P = ParamSpec("P")
T = TypeVar("T")


class Items(Generic[T]):
    """A flow that gives items of one type."""

    def __init__(self, flow: Flow[None]) -> None:
        self.flow = flow


class Waits:
    """A client whose calls return when they are done."""

    def _run(self, flow: Flow[T]) -> T:
        raise NotImplementedError

    def _each(self, flow: Flow[None]) -> Iterator[Any]:
        raise NotImplementedError


class Awaits:
    """A client whose calls are awaited, and whose iterators are asynchronous."""

    async def _run(self, flow: Flow[T]) -> T:
        raise NotImplementedError

    def _each(self, flow: Flow[None]) -> AsyncIterator[Any]:
        raise NotImplementedError


class once(Generic[P, T]):  # noqa: N801  a decorator
    """A method with one result."""

    def __init__(self, described: Callable[Concatenate[Any, P], Flow[T]]) -> None:
        self._described = described
        self.__doc__ = described.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: Waits, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: Awaits, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        if client is None:
            return self

        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client._run(self._described(client, *args, **kwargs))

        return update_wrapper(call, MethodType(self._described, client))


class each(Generic[P, T]):  # noqa: N801  a decorator
    """A method that gives one item after the other."""

    def __init__(self, described: Callable[Concatenate[Any, P], Items[T]]) -> None:
        self._described = described
        self.__doc__ = described.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: Waits, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: Awaits, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        if client is None:
            return self

        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client._each(self._described(client, *args, **kwargs).flow)

        return update_wrapper(call, MethodType(self._described, client))
